"""Rounds of the same work: the leaks that notebooks have are found by their path, what only fills is none."""
from __future__ import annotations

import gc
import itertools
import random
import weakref

import pytest
import torch

from jupyter_gpumem.actions.leaks import LeakWatch, assert_no_leak, find_leak
from jupyter_gpumem.errors import InputError, LeakError
from jupyter_gpumem.model import Cause, Verdict


def rounds_in_a_block(count, work):
    with assert_no_leak(None) as leak:
        for _ in range(count):
            work()
            leak.round()
    return leak.judge()


def paths_of(leaks):
    return {trend.path for trend in leaks.trends if trend.verdict is Verdict.LEAK}


def find(shell, setup, step):
    """The verdict on five rounds of a function of the notebook."""
    body = "\n    ".join(step.splitlines())
    done = shell.run_cell(f"import torch, collections, gc\nw = torch.ones(1000, requires_grad=True)\n{setup}\ndef step():\n    {body}")
    done.raise_error()
    return find_leak(shell, shell.user_ns["step"], rounds=5)


LEAKS = {
    "losses with their graphs": ("losses = []", "losses.append(w.exp().sum())", {"losses[·]", "losses[·] → graph"}),
    "a running sum": ("total = 0", "global total\ntotal += w.exp().sum()", {"total → graph"}),
    "models of a loop": ("models = []", "models.append(torch.nn.Linear(9, 9))", {"models[·].weight", "models[·].bias"}),
    "a model that is enlarged": ("net = torch.nn.Sequential()", "net.append(torch.nn.Linear(9, 9))", {"net[·].weight", "net[·].bias"}),
    "a cache by key": ("cache = {}", "cache[f'k{len(cache)}]'] = torch.zeros(99)", {"cache[·]"}),
    "a hook's closure": (
        "class Keep:\n    def __init__(self): self.seen = []\n    def hook(self, m, i, o): self.seen.append(o)\n"
        "net = torch.nn.Linear(9, 9); net.register_forward_hook(Keep().hook)",
        "net(torch.zeros(1, 9))",
        None,
    ),
}


@pytest.mark.parametrize("name", LEAKS)
def test_leaks_are_found_by_their_path(shell, name):
    setup, step, expected = LEAKS[name]
    leaks = find(shell, setup, step)
    assert (leaks.verdict, leaks.rounds, leaks.title) == (Verdict.LEAK, 5, "step()")
    assert len(leaks.trends[0].sizes) == 6
    if expected is None:
        assert any("seen[·]" in path for path in paths_of(leaks))
    else:
        assert paths_of(leaks) == expected


def test_outputs_that_are_kept(shell):
    watch = LeakWatch(shell)
    shell.run_cell("import torch", store_history=True)
    for _ in range(5):
        shell.run_cell("torch.zeros(1000)", store_history=True)
        watch.round()
    leaks = watch.judge()
    assert paths_of(leaks) == {"Out[·]"}
    assert leaks.trends[0].cause is Cause.OUTPUT
    assert leaks.trends[0].sizes == (4000, 8000, 12000, 16000, 20000)


STEADY = {
    "a cache that fills and stops": ("cache = {}", "cache.setdefault(len(cache) % 2, torch.zeros(999))"),
    "Python numbers": ("losses = []", "losses.append(float(w.exp().sum()))"),
    "an optimizer's first step": (
        "net = torch.nn.Linear(9, 9); opt = torch.optim.Adam(net.parameters()); n = [0]",
        "n[0] += 1\nopt.zero_grad()\nnet(torch.ones(1, 9)).sum().backward()\nif n[0] > 2: opt.step()",
    ),
    "a replay buffer": ("buffer = collections.deque(maxlen=2)", "buffer.append(torch.zeros(999))"),
    "a replay buffer with a cursor": ("buffer, n = [], [0]", "n[0] += 1\nif len(buffer) < 2: buffer.append(None)\nbuffer[n[0] % len(buffer)] = torch.zeros(999)"),
    "a name that is bound anew": ("last = None", "global last\nlast = w.exp().sum()"),
    "a detached sum": ("total = torch.zeros(())", "total.add_(w.exp().sum().detach())"),
    "garbage": ("", "torch.zeros(9999) + 1\nreturn w.exp()"),
}


@pytest.mark.parametrize("name", STEADY)
def test_what_only_fills_is_no_leak(shell, name):
    leaks = find(shell, *STEADY[name])
    assert (leaks.verdict, leaks.trends) == (Verdict.STEADY, ())


def test_a_large_buffer_that_still_fills_is_not_called_a_leak(shell):
    leaks = find(shell, "buffer = collections.deque(maxlen=1000)", "buffer.append(torch.zeros(999))")
    assert leaks.verdict is Verdict.UNSURE
    assert "maxlen" in leaks.notes[0]


def test_dead_cycles_are_a_note(shell):
    gc.collect()
    gc.disable()
    try:
        leaks = find(shell, "class Node: pass", "n = Node()\nn.me = n\nn.t = torch.zeros(1024)")
    finally:
        gc.enable()
    assert leaks.verdict is Verdict.UNSURE
    assert {trend.cause for trend in leaks.trends} == {Cause.CYCLE}
    assert any(note.startswith("dead cycles hold 4.0 KiB more each round") for note in leaks.notes)


# ---------------------------------------------------------------- running the function
def test_arguments_are_given_and_what_they_keep_is_named():
    seen = []

    def work(box, *, size, device):
        seen.append((size, device))
        box.append(torch.zeros(size))

    leaks = find_leak(None, work, ([],), {"size": 100, "device": "any"}, rounds=3)
    assert seen == [(100, "any")] * 4
    assert paths_of(leaks) == {"argument 1[·]"}
    assert (leaks.rounds, leaks.trends[0].sizes) == (3, (400, 800, 1200, 1600))


def test_what_the_function_closes_over_is_named():
    def make():
        kept = []
        return lambda: kept.append(torch.zeros(100))

    leaks = find_leak(None, make(), rounds=3)
    assert paths_of(leaks) == {"the function → closure 'kept'[·]"}


def test_an_error_comes_through_untouched():
    error = RuntimeError("mine")

    def work():
        raise error

    with pytest.raises(RuntimeError) as caught:
        find_leak(None, work)
    assert caught.value is error
    assert error.__cause__ is None
    assert error.__context__ is None


async def coroutine():
    pass


def generator():
    yield


@pytest.mark.parametrize("lazy", [coroutine, generator])
def test_what_a_call_would_not_run_is_refused(lazy):
    with pytest.raises(InputError, match="would run nothing"):
        find_leak(None, lazy)
    with pytest.raises(InputError, match="would run nothing"):
        assert_no_leak(None)(lazy)


def test_too_few_rounds_are_refused():
    with pytest.raises(InputError):
        find_leak(None, list, rounds=0)
    with pytest.raises(InputError, match="cannot prove"):
        assert_no_leak(None, rounds=2)
    with pytest.raises(InputError, match=r"call round\(\)"), assert_no_leak(None, rounds=5):
        pass
    with pytest.raises(InputError, match="called 2 times"):
        rounds_in_a_block(2, list)


def test_a_device_that_does_not_exist_is_refused():
    with pytest.raises(InputError, match="no device"):
        find_leak(None, list, device="cuda:99")


def test_neither_random_state_nor_the_collectors_settings_change():
    state, torch_state = random.getstate(), torch.get_rng_state()
    before = gc.isenabled(), gc.get_threshold(), gc.get_debug()
    with assert_no_leak(None):
        pass
    find_leak(None, list, rounds=3)
    assert random.getstate() == state
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert (gc.isenabled(), gc.get_threshold(), gc.get_debug()) == before


def test_a_watch_keeps_nothing_alive():
    watch = LeakWatch(None)
    tensor = torch.zeros(1000)
    alive = weakref.ref(tensor)
    with assert_no_leak(None) as check:
        watch.round()
    del tensor
    assert alive() is None
    assert check is not None


# ---------------------------------------------------------------- the check: rounds
def test_rounds_in_a_block_that_leak_say_where():
    losses, weight = [], torch.ones(1 << 20, requires_grad=True)
    with pytest.raises(LeakError) as caught:
        rounds_in_a_block(4, lambda: losses.append(weight.exp().sum()))
    assert isinstance(caught.value, AssertionError)
    lines = str(caught.value).splitlines()
    assert lines[0] == "leak in 3 rounds of the block, after one that warmed up"
    assert "local 'losses'[·] → graph   4.0 MiB → 8.0 MiB → 12.0 MiB → 16.0 MiB   (+4.0 MiB a round)" in lines[1]
    assert lines[2] == (
        "      to free it: keep a number (.item()) or .detach() in local 'losses'[·]: as it is, it keeps its whole graph"
    )


def rounds_on_lines_of_their_own(kept):
    with assert_no_leak(None) as leak:
        kept.append(torch.zeros(100))
        leak.round()
        kept.append(torch.zeros(100))
        leak.round()
        kept.append(torch.zeros(100))
        leak.round()
        kept.append(torch.zeros(100))
        leak.round()


def test_rounds_on_lines_of_their_own_leak_too():
    with pytest.raises(LeakError, match="'kept'"):
        rounds_on_lines_of_their_own([])


def test_rounds_in_a_block_that_are_steady_pass():
    last = [None]
    sizes = itertools.cycle([100, 200])
    leaks = rounds_in_a_block(5, lambda: last.__setitem__(0, torch.zeros(next(sizes))))
    assert leaks.verdict is Verdict.STEADY


def test_many_rounds_are_shown_by_the_first_and_the_last():
    kept = []
    with pytest.raises(LeakError, match=r"400 B → … → 3\.1 KiB → 3\.5 KiB → 3\.9 KiB → 4\.3 KiB"):
        rounds_in_a_block(11, lambda: kept.append(torch.zeros(100)))


# ---------------------------------------------------------------- the check: one block
class Cell:
    pass


KEPT = []


def dangle(size):
    """A tensor that a hook of its own history holds: no name does, and the collector does not see the cycle."""
    out = torch.ones(size, requires_grad=True).exp()
    out.grad_fn.register_hook(lambda *grads, keep=out: None)


def test_a_block_that_leaves_only_what_is_named_passes():
    with assert_no_leak(None):
        local = torch.zeros(1000)
        KEPT.append(torch.zeros(1000))
        Cell.cache = torch.zeros(1000)
        cycle = Cell()
        cycle.me, cycle.tensor = cycle, torch.zeros(1000)
        del cycle
    KEPT.clear()
    del Cell.cache, local


def test_a_block_that_leaves_what_no_name_keeps_fails():
    with pytest.raises(LeakError) as caught, assert_no_leak(None):
        dangle(3000)
    lines = str(caught.value).splitlines()
    assert lines[0] == "leak: 2 storages made in the block, 23.4 KiB, still there and kept by no name"
    assert all("cycle through C++" in line and line.endswith(" KiB") for line in lines[1:])


def test_what_dangled_before_the_block_is_not_its_doing(shell):
    shell.run_cell("import torch\ntorch.zeros(1000)", store_history=True)
    with assert_no_leak(shell):
        pass


def test_an_exception_in_the_block_is_not_masked():
    error = KeyError("mine")

    def fail():
        raise error

    with pytest.raises(KeyError) as caught:
        rounds_in_a_block(1, fail)
    assert caught.value is error
    assert error.__context__ is None


# ---------------------------------------------------------------- the check: decorator
def test_a_decorated_function_runs_and_returns_its_last_result():
    calls = []

    @assert_no_leak(None, rounds=3)
    def work(scale, *, size=10):
        """Doc."""
        calls.append(size)
        return torch.ones(size) * scale * len(calls)

    assert work(2, size=5).tolist() == [8.0] * 5
    assert calls == [5] * 4
    assert (work.__name__, work.__doc__) == ("work", "Doc.")


def test_a_decorated_function_that_leaks_fails_each_time():
    kept = []

    @assert_no_leak(None, rounds=3)
    def work():
        kept.append(torch.zeros(100))

    for _ in range(2):
        with pytest.raises(LeakError, match=r"leak in 3 rounds of work\(\)"):
            work()
    assert len(kept) == 8


def test_a_bare_decorator_judges_one_call():
    @assert_no_leak(None)
    def fine(box):
        box.append(torch.zeros(100))
        return {"made": [torch.zeros(100)]}

    @assert_no_leak(None)
    def dangling():
        dangle(1000)

    box = []
    assert fine(box)["made"][0].numel() == 100
    with pytest.raises(LeakError, match=r"made in dangling\(\)"):
        dangling()


def test_an_error_of_a_decorated_function_comes_through():
    @assert_no_leak(None, rounds=3)
    def work():
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        work()


def test_on_an_accelerator(run_on):
    seen = run_on(
        "simgpu",
        """
import json, torch
from jupyter_gpumem.actions.leaks import assert_no_leak, find_leak
from jupyter_gpumem.errors import LeakError
kept, host = [], []
def work():
    kept.append(torch.ones(1 << 18, device="simgpu"))
    host.append(torch.ones(10))
leaks = find_leak(None, work, rounds=3)
try:
    with assert_no_leak(None) as leak:
        for _ in range(4):
            work()
            leak.round()
except LeakError as error:
    text = str(error)
print(json.dumps([leaks.verdict.value, [(t.path, t.sizes) for t in leaks.trends], text]))
""",
    )
    verdict, trends, text = seen.json
    assert verdict == "leak"
    assert trends == [["kept[·]", [1 << 20, 2 << 20, 3 << 20, 4 << 20]]]
    assert "5.0 MiB → 6.0 MiB → 7.0 MiB → 8.0 MiB   (+1.0 MiB a round)" in text
