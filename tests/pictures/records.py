"""Records made by hand, one of each kind, for the renderers."""
from __future__ import annotations

from jupyter_gpumem import model
from jupyter_gpumem.model import Action, Allocator, Cause, Holder, Holding, Step

MIB, GIB = 1 << 20, 1 << 30


def holding(path, nbytes=MIB, cause=Cause.NAME, name=None, tensor_bytes=None, unseen=0):
    tensor = model.Tensor("Tensor", (512, 512), "float32", tensor_bytes or nbytes)
    return Holding("torch", "cuda:0", id(path), nbytes, (tensor,), Holder(path, cause, name), unseen)


GPU = model.Device(
    "GPU-1", "gpu", 0, "NVIDIA A100", 80 * GIB, 9 * GIB, 70 * GIB, GIB, 35, 41, 72000,
    (model.Process(1, 6 * GIB, own=True), model.Process(2, 2 * GIB)), None, "cuda:0", ("A note on this GPU.",),
)
MUTE = model.Device("GPU-2", "gpu", 1, "Silent GPU")
HOST = model.Device("cpu", "host", None, "Host memory", 64 * GIB, 8 * GIB, 56 * GIB, alias="cpu",
                    processes=(model.Process(1, 3 * GIB, own=True),))
POOL = Allocator("torch", "cuda:0", 4 * GIB, 5 * GIB, 6 * GIB)
NAMED = [holding(f"model.{i}.weight", (i + 1) * MIB, name=f"name{i}") for i in range(20)]
DANGLING = [
    holding("last error: frame of step(), line 5, local 'acts'", 3 * MIB, Cause.LAST_ERROR),
    holding("Out[3]", 2 * MIB, Cause.OUTPUT),
    holding("no name: held by C++ alone", MIB, Cause.UNKNOWN, unseen=2),
]
SNAPSHOT = model.Snapshot(1.0, ("cuda:0",), (GPU, MUTE, HOST), (POOL,), (*NAMED, *DANGLING), ("No second driver.",))
EMPTY = model.Snapshot(1.0, ("cpu",), (HOST,), (), (), ("No NVIDIA driver on this machine.",))
VIEW = model.Snapshot(1.0, ("cpu",), (HOST,), (), (holding("probe", GIB, name="probe", tensor_bytes=4096),))
PLAN = model.Plan(
    (Action(Step.NAME, "acts", 5 * MIB), Action(Step.CACHE, "autocast cache", None, "left open"),
     Action(Step.EMPTY, "cuda:0", 7 * MIB)),
    ("cuda:0",), held=(holding("trainer.kept", name="trainer"),), notes=("2 of the storages have references",),
)
REPORT = model.Report(PLAN, PLAN.actions, 4 * MIB, (POOL,), (Allocator("torch", "cuda:0", 3 * GIB, 4 * GIB),),
                      (holding("trainer.kept", name="trainer"),), ("empty cache: RuntimeError: no",))
USES = (model.NameUse("acts", "Tensor", 5 * MIB, 1, (1024, 1280), "float32"), model.NameUse("net", "Linear", MIB, 2))
AFTER = (Allocator("torch", "cuda:0", 5 * GIB, 6 * GIB, 7 * GIB),)
MEASURED = model.CellUse("cell [7]", (POOL,), AFTER, USES)
CLEANED = model.CellUse("cell [8]", (POOL,), AFTER, USES, report=REPORT, failed=True)
DRY = model.CellUse("cell [9]", (POOL,), AFTER, plan=PLAN)
BRIEF = model.CellUse("cell [7]", (POOL,), AFTER, USES, brief=True)
OBJECT = model.ObjectUse("net", "Sequential", 6 * MIB, USES)
WHY = model.Why("net", 6 * MIB, (Holder("net.weight", Cause.NAME, "net"), Holder("Out[3]", Cause.OUTPUT)), ("perhaps: x",))
NOTICE = model.Notice("gpumem: Out[3] alone keeps 1.0 GiB")
ALL = {
    "snapshot": SNAPSHOT, "empty": EMPTY, "view": VIEW, "plan": PLAN, "report": REPORT, "measured": MEASURED,
    "cleaned": CLEANED, "dry": DRY, "brief": BRIEF, "object": OBJECT, "why": WHY, "notice": NOTICE,
}
FACTS = {
    "snapshot": ["cuda:0", "NVIDIA A100", "9.0 GiB of 80.0 GiB used", "allocated 4.0 GiB", "cached 1.0 GiB",
                 "context and libraries 1.0 GiB", "other processes 2.0 GiB", "unattributed 1.0 GiB", "driver 1.0 GiB",
                 "free 70.0 GiB", "35%", "41 °C", "72 W", "A note on this GPU.", "Silent GPU", "utilisation N/A",
                 "N/A of N/A used", "name19", "512×512 float32", "… and 8 more", "step(), line 5", "Out[3]", "%gpufree",
                 "2 references unseen", "No second driver."],
    "empty": ["Host memory", "8.0 GiB of 64.0 GiB used", "none holds memory of host memory (cpu)", "Dangling", "nothing",
              "No NVIDIA driver"],
    "view": ["4.0 KiB view of a 1.0 GiB storage"],
    "plan": ["nothing was done", "would free 5.0 MiB", "delete name acts", "unknown", "left open", "trainer.kept"],
    "report": ["Freed", "4.0 MiB", "1.0 GiB back to the driver", "1.0 MiB less than planned", "Still held", "trainer.kept",
               "jupyter_gpumem: empty cache: RuntimeError: no"],
    "measured": ["cell [7]", "cuda:0 4.0 GiB → 5.0 GiB (+1.0 GiB), peak 7.0 GiB", "acts", "1024×1280 float32", "net"],
    "cleaned": ["cell [8] (failed)", "delete name acts", "now allocated: cuda:0 3.0 GiB"],
    "dry": ["nothing was done", "cell [9]"],
    "brief": ["gpumem cell [7]: cuda:0 4.0 GiB → 5.0 GiB (+1.0 GiB), peak 7.0 GiB, new: acts 5.0 MiB, net 1.0 MiB"],
    "object": ["net", "Sequential", "6.0 MiB", "Linear, 2 storages"],
    "why": ["net.weight", "Out[3]", "perhaps: x"],
    "notice": ["alone keeps 1.0 GiB"],
}
