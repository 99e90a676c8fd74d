"""What emptying the cache gives back is said beforehand, to the byte where the allocator lists its segments."""
from __future__ import annotations

import pytest

from jupyter_gpumem.actions.emptying import given_back
from jupyter_gpumem.model import Block, Segment

SESSION = """
import json, os, random, tempfile
os.environ["IPYTHONDIR"] = tempfile.mkdtemp()
import torch
import jupyter_gpumem
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "jupyter_gpumem")
space = shell.user_ns

def reserved():
    return torch.accelerator.memory_reserved()

def said(names):
    (action,) = [one for one in jupyter_gpumem.plan(*names).actions if one.step.value == "empty cache"]
    return action

def played(seed):
    rng = random.Random(seed)
    for number in range(40):
        name = f"n{rng.randrange(16)}"
        space.pop(name, None)
        if rng.random() < 0.7:
            space[name] = torch.zeros(rng.choice([3, 9, 200, 700, 1500, 3000, 5200]) << 8, device=DEVICE)
    names = [name for name in list(space) if name[:1] == "n" and name[1:].isdigit() and rng.random() < 0.4]
    action, before = said(names), reserved()
    jupyter_gpumem.free(*names)
    after = reserved()
    stays = after - torch.accelerator.memory_allocated()
    return [action.nbytes, before - after, action.note.endswith("fragments"), stays > 0]

"""


def test_where_no_segments_are_listed_it_is_the_most_that_can_come_back(run_on):
    rows = run_on("simgpu", SESSION + "print(json.dumps([played(seed) for seed in range(4)]))").json
    assert all(promised >= came and says for promised, came, says, _ in rows), rows


def test_the_plan_says_what_comes_back(run_on):
    rows = run_on("cuda", SESSION + "print(json.dumps([played(seed) for seed in range(8)]))").json
    assert all(promised == came for promised, came, _, _ in rows), rows
    assert all(says == stays for _, _, says, stays in rows), rows
    assert any(came for _, came, _, _ in rows) and any(stays for _, _, _, stays in rows)


def segment(*states, private=False):
    blocks = tuple(Block(place * 100, 100, state) for place, state in enumerate(states))
    return Segment("cuda:0", 0, 100 * len(blocks), "small", blocks, private)


@pytest.mark.parametrize(
    ("one", "freed", "expected"),
    [
        (segment("free", "allocated"), {100}, (200, 0)),
        (segment("free", "allocated", "allocated"), {100}, (0, 200)),
        (segment("awaiting"), {0}, (100, 0)),
        (segment("free", "awaiting"), set(), (0, 100)),
        (segment("free", private=True), set(), (0, 100)),
        (segment("allocated"), set(), (0, 0)),
    ],
)
def test_only_whole_segments_go_back(one, freed, expected):
    assert given_back([one], freed) == expected
