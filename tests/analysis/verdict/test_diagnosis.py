"""One main cause by evidence: built shortages on the simulated CUDA, other devices, and the session left as it was."""
from __future__ import annotations

import pytest

from jupyter_gpumem.analysis.verdict import diagnosis
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.model import Baseline, DeviceFault, Diagnosis, OutOfMemory, Reason

RUN = """
import json, os, tempfile
os.environ["IPYTHONDIR"] = tempfile.mkdtemp()
from analysis.verdict import shortages
"""


def test_built_shortages_are_judged_right(run_on, nvml_machine, nvml_env):
    """One of each kind; the benchmark runs many."""
    nvml_machine.put("gpu 0 total=256M used=0 reserved=0\n")
    source = RUN + "print(json.dumps([shortages.run(shortages.SCENARIOS, [0]), shortages.TRUTH]))"
    found, truth = run_on("cuda", source, **nvml_env, SIMGPU_CONTEXT_MB="8").json
    assert {one["name"]: one["reason"] for one in found} == truth
    by_name = {one["name"]: one for one in found}
    assert by_name["step"]["code"] == "%%gpufree --retry 3 --halve batch_size"
    most, of = by_name["step"]["most"]
    assert 0 < most < of == by_name["step"]["batch"]
    assert by_name["dangling"]["code"] == "%gpufree"
    assert "expandable_segments:True" in by_name["fragments"]["code"]
    assert by_name["leak"]["code"].startswith("%gpumem --why ")
    for name in ("others", "others grow"):
        assert by_name[name]["says"] in by_name[name]["cause"], name
    for one in found:
        assert one["place"].startswith("cell ["), one["name"]
        assert one["line"], one["name"]
        facts = dict(one["facts"])
        known = ("asked" in text for text in facts)
        assert any(known), one["name"]
    assert set(by_name["together"]["contributing"]) == {"dangling", "others"}


BACKENDS = """
import json, os, tempfile
os.environ["IPYTHONDIR"] = tempfile.mkdtemp()
import gc, torch
import simgpu
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config
from jupyter_gpumem.analysis.verdict import diagnosis
config = Config(); config.HistoryManager.hist_file = ":memory:"
shell = InteractiveShell.instance(config=config)
shell.user_ns["DEV"] = DEVICE + ":0"
def cell(code):
    return shell.run_cell(code, store_history=True)
def why(code):
    before = diagnosis.baseline(shell, (DEVICE,))
    error = cell(code).error_in_exec
    return diagnosis.judge(shell, diagnosis.read(error), error, before)
cell("import torch, gc")
"""
SIMPLE = """
found = []
found.append(why("huge = torch.empty(100 << 20, device=DEV)"))
cell("gc.disable(); c = [torch.empty(30 << 20, device=DEV)]; c.append(c); del c")
found.append(why("y = torch.empty(40 << 20, device=DEV)"))
gc.enable(); gc.collect()
cell("kept = torch.empty(30 << 20, device=DEV)")
found.append(why("y = torch.empty(40 << 20, device=DEV)"))
print(json.dumps([[d.reason.value, d.error.device, d.origin.place] for d in found]))
"""


@pytest.mark.parametrize("device", ["cuda", "simgpu"])
def test_without_a_driver_and_without_a_list_of_blocks(run_on, device):
    found = run_on(device, BACKENDS + SIMPLE, SIMGPU_MEM_MB="256").json
    assert [reason for reason, _, _ in found] == ["one tensor", "dangling", "step"]
    assert {on for _, on, _ in found} == {f"{device}:0"}
    assert all(place for _, _, place in found)


LEAVING = """
cell("kept = torch.empty(30 << 20, device=DEV)")
torch.manual_seed(1)
before = diagnosis.baseline(shell, (DEVICE,))
error = cell("def f(x):\\n    y = torch.empty(10 << 20, device=DEV)\\n    return torch.empty(60 << 20, device=DEV)\\nf(kept)").error_in_exec
said = diagnosis.read(error)
def state():
    names = {n: id(v) for n, v in shell.user_ns.items()}
    stats = torch.accelerator.memory_stats(0)
    return names, stats["allocated_bytes.all.peak"], stats["allocation.all.allocated"], torch.get_rng_state().sum().item(), len(shell.user_ns["Out"]), torch.is_grad_enabled()
diagnosis.judge(shell, said, error, before)
one = state()
gc.collect(); objects = len(gc.get_objects())
for _ in range(20):
    diagnosis.judge(shell, said, error, before)
    diagnosis.sentence(shell, said, error)
two = state()
gc.collect(); more = len(gc.get_objects()) - objects
allocated = torch.accelerator.memory_allocated(0)
cell("1")
del error
for name in ("last_exc", "last_value", "last_traceback", "last_type"):
    if hasattr(sys, name): delattr(sys, name)
from jupyter_gpumem import session
session.forget_error(shell)
gc.collect()
print(json.dumps([one == two, more, allocated - torch.accelerator.memory_allocated(0)]))
"""


@pytest.mark.parametrize("device", ["cuda", "simgpu"])
def test_judging_leaves_the_session_as_it_was(run_on, device):
    same, more, freed = run_on(device, BACKENDS + LEAVING).json
    assert same
    assert abs(more) < 60, "frames that were read keep nothing"
    assert freed == 40 << 20, "what the failing function held goes with its error"


UNTOUCHED = """
import simgpu
found = []
for text in ("CUDA error: out of memory", "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 1.00 GiB of which 1.00 GiB is free."):
    error = RuntimeError(text)
    found.append(diagnosis.judge(shell, diagnosis.read(error), error).reason.value)
diagnosis.baseline(shell)
print(json.dumps([found, torch.cuda.is_initialized(), simgpu.initialising_calls()]))
"""


def test_nothing_is_initialised_for_it(run_on):
    found = run_on("cuda", BACKENDS + UNTOUCHED, PYTORCH_NVML_BASED_CUDA_CHECK="0").json
    assert found == [["not sure", "one tensor"], False, []]


LOOKING_BACK = """
import jupyter_gpumem
cell("kept = torch.empty(30 << 20, device=DEV)")
assert not cell("def f(x):\\n    return torch.empty(60 << 20, device=DEV)\\nf(kept)").success
found = jupyter_gpumem.diagnose()
try:
    torch.empty(100 << 20, device=DEVICE)
except torch.OutOfMemoryError as error:
    caught = jupyter_gpumem.diagnose(error)
print(json.dumps([found.reason.value, found.origin.place, [n for n, _ in found.origin.tensors], caught.reason.value]))
"""


def test_the_last_error_can_be_asked_for_later(run_on):
    assert run_on("cuda", BACKENDS + LOOKING_BACK).json == ["step", "cell [3], line 2 in f()", [], "one tensor"]


# ---------------------------------------------------------------- without a device
def test_memory_of_the_host_that_no_machine_has():
    import torch

    with pytest.raises(RuntimeError) as caught:
        torch.empty(10**15)
    found = diagnosis.diagnose(None, caught.value)
    assert isinstance(found, Diagnosis)
    assert (found.reason, found.error.device) == (Reason.TENSOR, "cpu")
    assert "device='cpu'" not in found.cure


def test_a_host_that_does_not_say_how_much():
    found = diagnosis.diagnose(None, MemoryError())
    assert found.reason is Reason.UNSURE
    assert found.error.source == "python"


def test_faults_come_back_as_such():
    found = diagnosis.diagnose(None, RuntimeError("CUDA error: an illegal memory access was encountered"))
    assert isinstance(found, DeviceFault)
    assert found.dead


def test_an_error_of_another_kind_is_refused(shell):
    with pytest.raises(InputError, match="KeyError is none that tells of missing memory"):
        diagnosis.diagnose(None, KeyError("x"))
    with pytest.raises(InputError, match="no error of the last cells"):
        diagnosis.diagnose(shell)


def test_one_line_for_a_report(shell):
    error = shell.run_cell("raise RuntimeError('CUDA out of memory. Tried to allocate 32.00 MiB. GPU 0 has a total capacity of 4.00 GiB of which 41.56 MiB is free.')", store_history=True).error_in_exec
    said = diagnosis.read(error)
    assert isinstance(said, OutOfMemory)
    assert diagnosis.sentence(shell, said, error) == "out of memory on cuda:0: 32.0 MiB asked, 41.6 MiB free, cell [1], line 1"


def test_a_baseline_is_plain(shell):
    shell.run_cell("a = object()\nraise ValueError", store_history=True)
    found = diagnosis.baseline(shell, ("cpu",))
    assert isinstance(found, Baseline)
    assert found.names == {"a": id(shell.user_ns["a"])}
    assert found.last_error == "ValueError in cell [1], line 2"
    assert found.devices == ()
