"""A limit holds and is taken back; what is taken beforehand is there, and given back."""
from __future__ import annotations

import pytest

from jupyter_gpumem.actions import budget
from jupyter_gpumem.errors import InputError

LIMIT = """
import json, simgpu, torch
from jupyter_gpumem import frameworks
from jupyter_gpumem.actions import budget
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.frameworks import error_texts
MIB = 1 << 20
backend = getattr(torch, DEVICE)
fraction = backend.get_per_process_memory_fraction
said = []
def refused(size, device=None):
    try:
        budget.limit(size, device)
    except InputError as error:
        said.append(str(error))
    else:
        raise AssertionError("accepted")
def block(mib):
    return torch.empty(mib * MIB, dtype=torch.uint8, device=DEVICE)
def fits(mib):
    try:
        block(mib)
    except torch.OutOfMemoryError as error:
        return str(error)
    return True
refused("64MiB")
before = len(simgpu.initialising_calls())
kept = block(20)
backend.set_per_process_memory_fraction(0.75, 0)
calls = len(simgpu.initialising_calls())
refused("64MiB", "cpu")
refused("64MiB", DEVICE + ":1")
refused("1TiB")
refused("much")
assert fraction(0) == 0.75
first = budget.limit("64MiB").text
results = [fits(40) is True, fits(50), fraction(0)]
second = budget.limit("50%", DEVICE + ":0").text
results += [fits(100) is True, fits(120) is not True]
third = budget.limit(10 * MIB, DEVICE).text
results += [fits(1) is not True, kept.untyped_storage().nbytes() == 20 * MIB]
off = budget.limit("off").text
results += [fraction(0), fits(150) is True]
again = budget.limit("off").text
budget.limit("64MiB")
frameworks.loaded()[0].restore()
results += [fraction(0)]
budget.limit("64MiB")
backend.set_per_process_memory_fraction(0.5, 0)
changed = budget.limit("off").text
frameworks.loaded()[0].restore()
results += [fraction(0), fraction(1), len(simgpu.initialising_calls()) == calls]
print(json.dumps([said, results, [first, second, third, off, again, changed], before]))
"""


@pytest.mark.parametrize("device", ["cuda", "simgpu"])
def test_a_limit_holds_and_is_taken_back(run_on, device):
    said, results, lines, before = run_on(device, LIMIT, SIMGPU_DEVICES="2").json
    unused, host, other, too_much, no_size = said
    assert before == 0 and "make a first tensor on it before" in unused
    assert "host memory has no budget" in host
    assert other == f"{device}:1 is not in use yet, and this would start it: make a first tensor on it before"
    assert too_much == f"1.0 TiB is more than {device}:0 has: 256.0 MiB"
    assert "write for example" in no_size

    fits, over, fraction, half, more, tiny, alive, back, all_again, restored, users, others, quiet = results
    assert fits and "64 MiB allowed" in over and fraction == 0.25
    assert half and more
    assert tiny and alive, "what is there stays, and nothing comes"
    assert back == 0.75 and all_again
    assert restored == 0.75, "unloading restores it too"
    assert users == 0.5, "what the user has set since is the user's"
    assert others == 1.0 and quiet, "no other device was touched"

    first, second, third, off, again, changed = lines
    assert first == f"gpumem: this process reserves at most 64.0 MiB of {device}:0, which has 256.0 MiB; 20.0 MiB now"
    assert second.startswith("gpumem: this process reserves at most 128.0 MiB")
    assert "nothing is taken away" in third
    assert off == f"gpumem: the limit on {device}:0 is off"
    assert "no limit was set" in again and "no limit was set" in changed


TAKEN = """
import json, random, simgpu, torch
from jupyter_gpumem import frameworks, randomness
from jupyter_gpumem.actions.budget import Preallocated
from jupyter_gpumem.errors import InputError
MIB = 1 << 20
backend = getattr(torch, DEVICE)
def block(mib):
    return torch.empty(mib * MIB, dtype=torch.uint8, device=DEVICE)
def figures():
    return [n // MIB for n in (backend.memory_allocated(0), backend.memory_reserved(0), backend.max_memory_allocated(0))]
kept, seen = block(12), []
block(30)
backend.empty_cache()
state = randomness.take()
seen.append(figures())
with Preallocated("100MiB", None):
    seen.append(figures())
    simgpu.set_external(0, 256 * MIB)
    large = block(90)
    seen.append(figures())
    del large
    parts = [block(12) for _ in range(8)]
    seen.append(figures())
    del parts
    simgpu.set_external(0, 0)
seen.append(figures())
after = randomness.take()
assert (after.frameworks, after.python) == (state.frameworks, state.python)
with Preallocated("50%", DEVICE):
    stays = block(5)
seen.append(figures())
del stays
backend.empty_cache()
said = []
def refused(size, device=None, act=Preallocated):
    try:
        with act(size, device):
            raise AssertionError("accepted")
    except InputError as error:
        said.append(str(error))
refused("1GiB")
backend.set_per_process_memory_fraction(0.25, 0)
refused("100MiB")
backend.set_per_process_memory_fraction(1.0, 0)
seen.append(figures())
try:
    with Preallocated("100MiB", None):
        raise KeyError
except KeyError:
    seen.append(figures())
@Preallocated("64MiB", None)
def inside(a, b=2):
    return [a, b, figures()[1]]
seen.append(inside(1))
seen.append(figures())
frameworks.loaded()[0].restore()
print(json.dumps([seen, said]))
"""


@pytest.mark.parametrize("device", ["cuda", "simgpu"])
def test_memory_is_taken_before_others_take_it(run_on, device):
    seen, said = run_on(device, TAKEN).json
    before, taken, large, parts, after, pinned, refused, failed, inside, ended = seen
    assert before == [12, 12, 42]
    assert taken == [12, 112, 42], "the user's peak is what it was"
    assert large == [102, 112, 102], "there is room although others hold the rest of the device"
    assert parts == [108, 112, 108]
    assert after == [12, 12, 108], "given back"
    assert pinned == [17, 140, 108], "a tensor that outlives the block keeps the piece that it lies in"
    assert refused == failed == ended == [12, 12, 108]
    assert inside == [1, 2, 76]
    no_room, limited = said
    assert no_room.startswith(f"1.0 GiB of {device}:0 cannot be taken: ") and "are free on it" in no_room
    assert limited.startswith(f"100.0 MiB of {device}:0 cannot be taken beforehand: ") and "64 MiB allowed" in limited


def test_a_window_does_not_see_it(run_on):
    source = """
import json, torch
from jupyter_gpumem import frameworks
from jupyter_gpumem.actions.budget import Preallocated
kept = torch.empty(3 << 20, dtype=torch.uint8, device=DEVICE)
window = frameworks.loaded()[0].open_window()
with Preallocated("100MiB", None):
    pass
print(json.dumps(window.close()[DEVICE + ":0"] >> 20))
"""
    assert run_on("cuda", source).json == 3


def test_pieces_that_the_allocator_splits(run_on):
    source = """
import json, torch
from jupyter_gpumem.actions.budget import Preallocated
kept = torch.empty(1 << 20, dtype=torch.uint8, device=DEVICE)
with Preallocated("100MiB", None):
    sizes = sorted(s["total_size"] >> 20 for s in torch.cuda.memory_snapshot())
print(json.dumps(sizes))
"""
    assert run_on("cuda", source, PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:32").json == [2, 10, 30, 30, 30]
    assert run_on("cuda", source).json == [2, 100]


def test_on_the_host_there_is_no_budget(monkeypatch):
    monkeypatch.setattr(budget, "watched_devices", lambda device: ("cpu",))
    with pytest.raises(InputError, match="host memory has no budget"):
        budget.limit("1GiB")
    with pytest.raises(InputError, match="host memory has no budget"), budget.Preallocated("1GiB", "cpu"):
        pass
