"""Recording is bounded and starts nothing; the peak of a trace is where it was, whatever the trace has lost."""
from __future__ import annotations

import pickle
import random
import time

import pytest
import torch

from jupyter_gpumem.errors import InputError
from jupyter_gpumem.frameworks import torch_history as history
from jupyter_gpumem.frameworks.records import Frame


def event(action, size=0, addr=0, line=None):
    frames = [] if line is None else [
        {"filename": torch.__file__, "line": 1, "name": "empty"},
        {"filename": "/home/me/train.py", "line": line, "name": "step"},
    ]
    return {"action": action, "addr": addr, "size": size, "stream": 0, "frames": frames}


def freed(size, addr):
    return [event("free_requested", size, addr), event("free_completed", size, addr)]


def test_the_peak_is_where_most_was_allocated():
    trace = [
        event("segment_alloc", 2 << 20, 0x1000),
        event("alloc", 100, 0x1000, line=1),
        event("alloc", 300, 0x2000, line=2),
        *freed(300, 0x2000),
        event("snapshot"),
        event("alloc", 250, 0x2000, line=3),
        event("oom", 10_000),
        event("alloc", 60, 0x3000, line=4),
        *freed(250, 0x2000),
        event("segment_free", 2 << 20, 0x1000),
    ]
    peak = history.peak_of(trace)
    assert (peak.nbytes, peak.event, peak.site) == (410, 8, Frame("/home/me/train.py", 4, "step"))
    assert peak.frames[0].filename == torch.__file__
    assert history.peak_of(trace, at_end=1160).nbytes == 1410, "1000 bytes are older than the trace"
    assert history.peak_of(trace, since=9) is None
    assert history.peak_of([]) is None


def test_memory_that_waits_for_another_stream_is_in_use():
    trace = [
        event("alloc", 100, 1, line=1), event("free_requested", 100, 1),
        event("alloc", 50, 2, line=2), event("free_completed", 100, 1), event("alloc", 60, 3, line=3),
    ]
    assert (history.peak_of(trace).nbytes, history.peak_of(trace).event) == (150, 2)


def test_a_trace_without_one_of_the_two_events_of_a_free():
    trace = [event("alloc", 100, 1, line=1), event("free_requested", 100, 1), event("alloc", 90, 2, line=2)]
    assert history.peak_of(trace).event == 0
    only_completed = [{**e, "action": e["action"].replace("requested", "completed")} for e in trace]
    assert history.peak_of(only_completed).nbytes == 100


def test_what_a_full_ring_has_forgotten_is_known_from_its_end():
    rng = random.Random(1)
    live, levels, trace = {}, [], []
    for line in range(600):
        if live and rng.random() < 0.5:
            addr = rng.choice(list(live))
            trace += freed(live.pop(addr), addr)
            levels += [None, sum(live.values())]
        else:
            live[line] = rng.randrange(1, 1000)
            trace.append(event("alloc", live[line], line, line=line))
            levels.append(sum(live.values()))
    for kept in (900, 400, 100, 10):
        tail, tail_levels = trace[-kept:], levels[-kept:]
        allocs = [i for i, e in enumerate(tail) if e["action"] == "alloc"]
        if not allocs:
            continue
        best = max(allocs, key=lambda i: tail_levels[i])
        peak = history.peak_of(tail, at_end=sum(live.values()))
        assert (peak.nbytes, peak.event) == (tail_levels[best], best)
        assert history.peak_of(tail).event == best, "without the present figure the place is the same"


def test_without_the_present_figure_old_blocks_that_are_freed_count():
    trace = [event("alloc", 10, 5, line=1), *freed(500, 9), event("alloc", 20, 6, line=2)]
    assert (history.peak_of(trace).nbytes, history.peak_of(trace).event) == (510, 0)


def test_a_build_that_cannot_record_says_so(tmp_path):
    for call in (history.start, lambda: history.dump(tmp_path / "x.pickle"), lambda: history.peak_frames("cuda:0")):
        with pytest.raises(InputError, match="cannot record"):
            call()
    assert not history.is_recording()
    history.stop()


FAKE = """
import json, torch
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.frameworks import torch_history as history
calls, state = [], {"on": False}
def record(enabled, context, stacks, max_entries, *rest):
    calls.append([enabled, context, stacks, max_entries])
    state["on"] = enabled is not None
torch._C._cuda_record_memory_history = record
torch._C._cuda_isHistoryEnabled = lambda: state["on"]
said = []
def attempt(call, *args):
    try:
        return call(*args)
    except InputError as error:
        said.append(str(error))
"""

SWITCHING = FAKE + """
attempt(history.start); attempt(history.dump, "x"); attempt(history.peak_frames, "cuda:0"); history.stop()
early = [list(calls), simgpu.initialising_calls(), history.is_recording()]
torch.ones(1, device="cuda")
attempt(history.peak_frames, "cuda:0"); attempt(history.start, 0)
history.start(); on = history.is_recording(); history.start(5); history.stop(); off = history.is_recording(); history.stop(); history.start(1000)
print(json.dumps([early, said, on, off, calls, simgpu.initialising_calls()]))
"""


def test_recording_is_bounded_and_never_initialises(run_on):
    early, said, on, off, calls, initialising = run_on("cuda", SWITCHING).json
    assert early == [[], [], False]
    assert [text.split(":")[0] for text in said] == [
        *["CUDA has not been used in this kernel yet"] * 3,
        "allocations are not recorded",
        "0 events cannot be recorded",
    ]
    assert (on, off) == (True, False)
    assert [call[0] for call in calls] == ["all", None, "all"], "what runs already goes on"
    assert calls[0] == ["all", "all", "python", 100_000]
    assert calls[2][3] == 1000
    assert initialising == ["_lazy_init"]


DUMPED = FAKE + """
import os, pickle
x = torch.ones(1000, device="cuda:1")
frames = [{"filename": "/home/me/train.py", "line": 7, "name": "step"}]
genuine = torch._C._cuda_memorySnapshot
trace = [{"action": "alloc", "addr": 1, "size": 4000, "stream": 0, "frames": frames}]
torch._C._cuda_memorySnapshot = lambda *args: {**genuine(), "device_traces": [[], trace]}
history.start()
history.dump(PATH)
attempt(history.dump, os.path.join(PATH, "no", "folder"))
print(json.dumps([history.peak_frames("cuda:1"), history.peak_frames("cuda:0"), history.peak_frames("cuda:9"), said]))
"""


def test_the_file_is_torchs_and_the_peak_is_told_by_device(run_on, tmp_path):
    path = tmp_path / "snapshot.pickle"
    first, second, beyond, (said,) = run_on("cuda", f"PATH = {str(path)!r}\n" + DUMPED).json
    assert first == [4000, [["/home/me/train.py", 7, "step"]], 0, 0]
    assert second is beyond is None
    assert said.startswith("cannot write")
    with path.open("rb") as file:
        dumped = pickle.load(file)
    assert {"segments", "device_traces"} <= set(dumped)


def test_what_was_in_use_when_one_began_to_look_is_told():
    trace = [event("alloc", 500, 1, line=1), event("alloc", 10, 2, line=2), *freed(500, 1), event("alloc", 90, 3, line=3)]
    assert history.peak_of(trace, since=0).before == 0
    assert (history.peak_of(trace, since=2).nbytes, history.peak_of(trace, since=2).before) == (100, 510)
    assert history.peak_of(trace[1:], since=1, at_end=100).before == 510


def test_what_autograds_thread_allocates_is_the_call_of_backwards():
    seed = event("alloc", 10, 1, line=7)
    seed["frames"].insert(0, {"filename": torch.autograd.__file__, "line": 1, "name": "_make_grads"})
    alone = event("alloc", 100, 2)
    assert history.peak_of([event("alloc", 5, 9, line=1), seed, alone]).site == Frame("/home/me/train.py", 7, "step")
    assert history.peak_of([event("alloc", 5, 9, line=1), alone]).site is None, "that was not in a backward()"
    assert history.peak_of([alone]).site is None
    assert history.peak_of([seed, alone], since=1).site is None, "nor was it called since then"


RECORDED = """
import json, time, torch
from jupyter_gpumem.frameworks import torch_history as history
kept = torch.ones(1000, device="cuda")
w = torch.ones(5000, device="cuda", requires_grad=True)
unrecorded = history.peak_site("cuda:0", 0.0)
history.start()
code = compile("def forward():\\n    x = w * 2\\n    return x.exp() * x\\ndef backward():\\n    forward().sum().backward()\\n", "/home/me/train.py", "exec")
exec(code)
forward()
first = history.peak_site("cuda:0", 0.0)
moment = time.time()
backward()
second = history.peak_site("cuda:0", moment)
moment = time.time()
del kept
small = torch.ones(10, device="cuda")
print(json.dumps([unrecorded, first, second, history.peak_site("cuda:0", moment), history.peak_site("cuda:1", 0.0), history.peak_site("cpu", 0.0)]))
"""


def test_the_line_of_the_peak_since_a_moment(run_on):
    unrecorded, first, second, *nothing = run_on("cuda", RECORDED).json
    assert first == ["/home/me/train.py", 3, "forward"]
    assert second == ["/home/me/train.py", 5, "backward"], "a thread of autograd's has allocated it"
    assert [unrecorded, *nothing] == [None] * 4, "memory was fuller before the last allocation"


@pytest.mark.gpu
def test_on_a_real_gpu(tmp_path):
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    kept = torch.ones(1000, device="cuda")
    history.start(1000)
    try:
        small = torch.ones(1 << 20, device="cuda")
        large = torch.ones(8 << 20, device="cuda")
        del large
        again = torch.ones(1 << 20, device="cuda")
        peak = history.peak_frames("cuda:0")
        assert peak.site.filename == __file__
        assert peak.nbytes >= 36 << 20
        moment = time.time()
        last = torch.ones(16 << 20, device="cuda")
        assert history.peak_site("cuda:0", moment).filename == __file__
        assert history.peak_site("cuda:0", time.time()) is None
        history.dump(tmp_path / "s.pickle")
        assert (tmp_path / "s.pickle").stat().st_size
    finally:
        history.stop()
    assert not history.is_recording()
    del kept, small, again, last
