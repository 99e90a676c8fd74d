"""What changed between two moments, and which growth proves a leak."""
from __future__ import annotations

import collections
import gc
import random

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyter_gpumem.analysis import growth
from jupyter_gpumem.analysis.growth import Kept, Mark, diff, mark, pattern, trends, verdict
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.model import Cause, Verdict

CPU = ["cpu"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("model.weight", "model.weight"),
        ("losses[17]", "losses[·]"),
        ("cache['k3'].x", "cache[·].x"),
        ("grid[3]['a'][0].grad", "grid[·][·][·].grad"),
        ("Out[3]", "Out[·]"),
        ("Out[3] (list)[2]", "Out[·] (list)[·]"),
        ("opt.state[model.weight]['exp_avg']", "opt.state[·][·]"),
        ("opt.state[layers[0].weight]['exp_avg']", "opt.state[·][·]"),
        ("opt.state[box['a]'].weight]", "opt.state[·]"),
        ("box['a[0]'].x", "box[·].x"),
        ("box['a]b'][1]", "box[·][·]"),
        ('box["it\'s]"].x', "box[·].x"),
        (r"box['\'['].x", "box[·].x"),
        ("box[('a]', 1)].x", "box[·].x"),
        ("box[b'k]'].x", "box[·].x"),
        (f"box['{'long' * 11}…].x[1]", "box[·].x[·]"),
        ("net.layers.3.mlp.weight", "net.layers[·].mlp.weight"),
        ("net.layer3.w2", "net.layer3.w2"),
        ("total → graph (120 saved tensors)", "total → graph"),
        ("losses[4] → graph (3 saved tensors)", "losses[·] → graph"),
        ("step → closure 'maps'[1]", "step → closure 'maps'[·]"),
        ("logger 'a[0]'.x[1]", "logger 'a[0]'.x[·]"),
        ("job → task's error: frame of f(), line 3, local 'x'[1]['k']", "job → task's error: frame of f(), line 3, local 'x'[·][·]"),
        ("last error: frame of f(), line 3, local 'x'[2]", "last error: frame of f(), line 3, local 'x'[·]"),
        ("running: main(), line 12, local 'kept'[0]", "running: main(), local 'kept'[·]"),
        ("thread 'job [1]': work(), line 5, local 'x'", "thread 'job [1]': work(), local 'x'"),
    ],
)
def test_patterns(path, expected):
    assert pattern(path) == expected


@given(st.text(max_size=60))
def test_any_text_has_a_pattern(path):
    pattern(path)


@given(st.text(max_size=40) | st.binary(max_size=30) | st.integers() | st.tuples(st.text(max_size=5), st.integers()))
def test_any_key_is_one_index(key):
    text = repr(key)
    text = text if len(text) <= 48 or type(key) is tuple else text[:45] + "…"
    assert pattern(f"box[{text}].x[0]") == "box[·].x[·]"


# ---------------------------------------------------------------- marks and their differences
def own(growth):
    """The changes of the session's own: what the runner keeps of other tests may be found by another path meanwhile."""
    return [change for change in growth.changes if not change.path.startswith(("running: pytest", "tests."))]


def test_new_gone_larger_smaller(shell):
    shell.run_cell("import torch\ngone = torch.zeros(1000); box = [torch.zeros(500)]; less = [torch.zeros(10) for _ in range(3)]")
    before = mark(shell, "before", CPU)
    shell.run_cell("del gone; new = torch.zeros(2000); box.append(torch.zeros(300)); del less[-1]")
    growth = diff(before, mark(shell, "after", CPU))
    assert (growth.before, growth.after, growth.partial) == ("before", "after", False)
    assert [(c.path, c.cause, c.kind, c.nbytes, c.storages) for c in own(growth)] == [
        ("new", Cause.NAME, "new", 8000, 1),
        ("gone", Cause.NAME, "gone", -4000, -1),
        ("box[·]", Cause.NAME, "larger", 1200, 1),
        ("less[·]", Cause.NAME, "smaller", -40, -1),
    ]
    assert growth.allocators[1][0].allocated - growth.allocators[0][0].allocated == 8000 - 4000 + 1200 - 40


def test_what_another_has_replaced_is_no_change(shell):
    shell.run_cell("import torch\nx = torch.zeros(1000); box = [torch.zeros(500)]")
    before = mark(shell, "a", CPU)
    shell.run_cell("x = torch.ones(1000); box[0] = torch.ones(500)")
    assert own(diff(before, mark(shell, "b", CPU))) == []


def test_what_changes_hands_is_gone_from_one_and_new_in_the_other(shell):
    shell.run_cell("import torch\nx = torch.zeros(1000)")
    before = mark(shell, "a", CPU)
    shell.run_cell("y = x; del x")
    changes = own(diff(before, mark(shell, "b", CPU)))
    assert {(c.path, c.kind, c.nbytes) for c in changes} == {("x", "gone", -4000), ("y", "new", 4000)}


def test_the_line_at_which_a_function_stands_is_no_change():
    here = torch.zeros(1000)
    before = mark(None, "a", CPU)
    after = mark(None, "b", CPU)
    assert own(diff(before, after)) == []
    assert any("local 'here'" in path for path, _ in after.held)
    del here


def test_partial_searches_are_said():
    kept = torch.zeros(1000)
    cut_short = mark(None, "a", CPU, seconds=0.0)
    assert cut_short.partial
    assert diff(cut_short, cut_short).partial
    del kept


def test_marks_of_other_devices_are_not_compared():
    a = Mark("a", 0.0, ("cpu",), (), {("x", Cause.NAME): Kept(1, 1)})
    b = Mark("b", 0.0, ("cuda:0",), (), {})
    with pytest.raises(InputError, match="same devices"):
        diff(a, b)
    assert diff(Mark("before torch", 0.0, ("cpu",), (), {}), b).changes == ()


STEPS = st.lists(
    st.tuples(st.sampled_from(["bind", "append", "free", "pop", "alias", "view", "rebind"]), st.sampled_from("abc"), st.integers(1, 50)),
    max_size=8,
)


def run(program, env):
    for step, name, size in program:
        if step in ("bind", "rebind"):
            env[name] = torch.zeros(size)
        elif step == "append":
            env["box"].append(torch.zeros(size))
        elif step == "free":
            env.pop(name, None)
        elif step == "pop" and env["box"]:
            env["box"].pop(size % len(env["box"]))
        elif step == "alias" and name in env:
            env["box"].append(env[name])
        elif step == "view" and name in env:
            env["v" + name] = env[name][:1]


def storage_bytes(env):
    tensors = [*env["box"], *(value for key, value in env.items() if key != "box")]
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS, STEPS)
def test_changes_sum_to_the_difference(first, second):
    env = {"box": []}
    run(first, env)
    before, bytes_before = mark(None, "a", CPU), storage_bytes(env)
    run(second, env)
    after, bytes_after = mark(None, "b", CPU), storage_bytes(env)
    found = diff(before, after)
    assert sum(change.nbytes for change in found.changes) == bytes_after - bytes_before
    assert after.kept.nbytes - before.kept.nbytes == bytes_after - bytes_before
    assert sum(change.storages for change in found.changes if change.nbytes) <= len(env["box"]) + len(env)


def test_a_hundred_marks_leave_nothing_behind(run_on):
    seen = run_on(
        "cpu",
        """
import gc, json, torch
from jupyter_gpumem.analysis.growth import mark
kept = [torch.zeros(100), torch.zeros(100, requires_grad=True).exp()]
mark(None, "first", ["cpu"])
gc.collect()
counts, before = [sys.getrefcount(tensor) for tensor in kept], len(gc.get_objects())
for number in range(100):
    mark(None, str(number), ["cpu"])
gc.collect()
print(json.dumps([len(gc.get_objects()) - before, [sys.getrefcount(tensor) for tensor in kept] == counts]))
""",
    )
    more, same = seen.json
    assert more < 20
    assert same


def test_a_kept_mark_keeps_nothing_alive():
    tensor = torch.zeros(1000)
    address = tensor.untyped_storage()._weak_ref()
    seen = mark(None, "a", CPU)
    del tensor
    assert torch.UntypedStorage._expired(address)
    torch.UntypedStorage._free_weak_ref(address)
    assert seen.kept.nbytes >= 4000


def test_marks_change_neither_random_state_nor_the_collector():
    state, torch_state = random.getstate(), torch.get_rng_state()
    settings_before = gc.isenabled(), gc.get_threshold(), gc.get_debug()
    mark(None, "a", CPU)
    assert random.getstate() == state
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert (gc.isenabled(), gc.get_threshold(), gc.get_debug()) == settings_before


def test_hostile_objects_are_passed_untouched(shell):
    shell.run_cell(
        "import torch, collections\nclass Bad(collections.deque):\n"
        "    def __getattribute__(self, n): raise SystemExit('ran')\n"
        "    __eq__ = __len__ = __repr__ = __bool__ = __iter__ = lambda s, *a: 1/0\n"
        "    maxlen = property(lambda s: 1/0)\n"
        "bad = Bad(maxlen=5); collections.deque.append(bad, torch.zeros(1111))"
    )
    seen = mark(shell, "a", CPU)
    assert seen.held["bad[·]", Cause.NAME] == Kept(4444, 1)
    assert ("bad[·]", Cause.NAME) in seen.filling


# ---------------------------------------------------------------- rounds
def looks(sizes, storages=None, path="x[·]", cause=Cause.NAME, **more):
    storages = storages or [size // 10 for size in sizes]
    return [
        Mark(str(at), 0.0, ("cpu",), (), {(path, cause): Kept(*pair)} if pair[0] else {}, **more)
        for at, pair in enumerate(zip(sizes, storages, strict=True))
    ]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([0, 10, 20, 30], Verdict.LEAK),
        ([50, 60, 70, 80, 90, 100], Verdict.LEAK),
        ([10, 10, 10, 20, 30, 40], Verdict.LEAK),
        ([0, 10, 20], Verdict.UNSURE),
        ([10, 20], Verdict.UNSURE),
        ([0, 10, 20, 20, 30], Verdict.UNSURE),
        ([10, 20, 30, 40, 40], Verdict.UNSURE),
        ([10, 20, 30, 40, 10], Verdict.STEADY),
        ([0, 10, 10, 10], Verdict.STEADY),
        ([0, 10, 20, 20, 20, 20], Verdict.STEADY),
        ([10, 10], Verdict.STEADY),
        ([10, 0, 10, 0, 10], Verdict.STEADY),
        ([40, 30, 20, 10], Verdict.STEADY),
        ([], Verdict.UNSURE),
        ([10], Verdict.UNSURE),
    ],
)
def test_verdicts(sizes, expected):
    found = verdict("work", looks(sizes))
    assert found.verdict is expected
    assert [t.verdict for t in found.trends] == ([expected] if expected is not Verdict.STEADY and len(sizes) > 1 else [])
    assert found.rounds == max(0, len(sizes) - 1)


def test_one_storage_that_only_gets_larger_is_no_proof():
    assert verdict("work", looks([10, 20, 30, 40], storages=[1, 1, 1, 1])).verdict is Verdict.UNSURE
    assert verdict("work", looks([10, 20, 15, 40], storages=[1, 1, 1, 1])).verdict is Verdict.STEADY


def test_what_the_collector_will_free_is_no_leak():
    for cause in (Cause.CYCLE, Cause.FRAME):
        found = verdict("work", looks([0, 2048, 4096, 6144], cause=cause))
        assert found.verdict is Verdict.UNSURE
        assert found.notes[0].startswith("dead cycles hold 2.0 KiB more each round")
    assert verdict("work", looks([0, 10, 20, 30], cause=Cause.GRAPH)).verdict is Verdict.LEAK


def test_a_search_that_ran_out_of_time_proves_nothing():
    found = verdict("work", looks([0, 10, 20, 30], partial=True))
    assert found.verdict is Verdict.UNSURE
    assert "ran out of time" in found.notes[-1]


def test_growth_under_a_new_path_each_time_is_said():
    marks = [Mark(str(at), 0.0, ("cpu",), (), {(f"run{n}", Cause.NAME): Kept(1024, 1) for n in range(at)}) for at in range(5)]
    found = verdict("work", marks)
    assert (found.verdict, found.trends) == (Verdict.UNSURE, ())
    assert found.notes == ("1.0 KiB more each round under other paths each time: run3",)


def test_proven_leaks_come_first_then_the_largest_growth():
    marks = [
        Mark(str(n), 0.0, ("cpu",), (), {
            ("small", Cause.NAME): Kept(n, n),
            ("large", Cause.NAME): Kept(9 * n, n),
            ("cycle", Cause.CYCLE): Kept(99 * n, n),
            ("steady", Cause.NAME): Kept(50, 1),
        })
        for n in range(5)
    ]
    assert [trend.path for trend in trends(marks)] == ["large", "small", "cycle"]
    assert trends(marks)[0].sizes == (0, 9, 18, 27, 36)


def test_a_bounded_deque_that_fills_is_no_proof_and_a_full_one_is_no_excuse(shell):
    shell.user_ns["filling"] = collections.deque(maxlen=100)
    shell.user_ns["full"] = collections.deque([[]], maxlen=1)
    seen = []
    for _ in range(4):
        shell.user_ns["filling"].append(torch.zeros(100))
        shell.user_ns["full"][0].append(torch.zeros(100))
        seen.append(growth.mark(shell, "", CPU))
    found = {trend.path: trend.verdict for trend in trends(seen)}
    assert found == {"filling[·]": Verdict.UNSURE, "full[·][·]": Verdict.LEAK}
