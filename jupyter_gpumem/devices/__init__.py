from jupyter_gpumem.model import *
def read(timeout=2.0): return DeviceReading()
def host(): return Device("cpu","host",None,"Host memory",total=24<<30,alias="cpu")
def visible_uuids(d): return None
