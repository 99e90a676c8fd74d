"""temp"""
from jupyter_gpumem import session
from jupyter_gpumem.analysis import holders
def why(obj, name=""): return holders.why(session.current(), obj, name)
