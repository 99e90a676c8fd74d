"""What is found under the objects asked for, and what moves along with it."""
from __future__ import annotations

from jupyter_gpumem.actions.relocation import joined

ALONG = """
import json, torch
from jupyter_gpumem.actions.relocation import Way, moves_of
a = torch.ones(10, device=DEVICE, requires_grad=True)
a.sum().backward()
b = a.detach()[2:]
c = torch.ones(5, device=DEVICE)
def going(stored):
    return Way(stored.part.device, "cpu", "any") if stored.part.device != "cpu" else None
found = {}
for label, objects in (("a", {"a": a}), ("list", {"list": [b, c]}), ("all", None)):
    moves, obstacles = moves_of(None, objects, going)
    found[label] = [sorted((m.label, m.nbytes, len(m.tensors), m.strangers) for m in moves), obstacles]
    moves.clear()
print(json.dumps(found))
"""


def test_gradients_and_strangers_move_along(run_on):
    found = run_on("cuda", ALONG).json
    assert found["a"] == [[["a", 40, 1, 0], ["a", 40, 3, 2]], []], "the gradient too; the view and its base are strangers"
    assert found["list"] == [[["list", 20, 1, 0], ["list", 40, 1, 1], ["list", 40, 3, 2]], []]
    assert [move[:2] for move in found["all"][0]] == [["any", 20], ["any", 40], ["any", 40]]


def test_of_many_obstacles_the_first_are_told():
    said = joined([str(number) for number in range(10)])
    assert said == "0; 1; 2; 3; and 6 more"
    assert joined(["one"]) == "one"
