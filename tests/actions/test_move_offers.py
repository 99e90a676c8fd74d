"""A move that was agreed to is made, and no other."""
from __future__ import annotations

import pytest

from jupyter_gpumem.actions.move_offers import MoveOffers
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.model import Direction

PRELUDE = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
import torch
from jupyter_gpumem.actions import parking
from jupyter_gpumem.actions.move_offers import MoveOffer, MoveOffers
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.model import Direction, Parking
shell = InteractiveShell.instance()
ns = shell.user_ns
ns["x"] = torch.ones(1 << 20, device=DEVICE)
ns["y"] = [torch.ones(1 << 18, device=DEVICE)]
offers = MoveOffers(shell)
where = lambda: [ns["x"].device.type, ns["y"][0].device.type]
"""

THERE_AND_BACK = PRELUDE + """
offer = offers.make(Direction.PARK, ("x", "y"))
planned = where(), [(m.name, m.nbytes) for m in offer.parking.moved], offer.parking.done
done = offers.take_up(offer.token)
parked = where(), done.done, done.direction.value, done.before[0].allocated - done.after[0].allocated
try:
    offers.take_up(offer.token)
except InputError as refusal:
    again = str(refusal)
back = offers.make(Direction.RESTORE, ("x",))
between = where()
offers.take_up(back.token)
print(json.dumps([planned, parked, again, between, where(), [one.name for one in parking.parked_names()]]))
"""


@pytest.mark.parametrize("device", ["cuda", "simgpu"])
def test_a_plan_moves_nothing_and_taking_it_up_does_what_it_says(run_on, device):
    planned, parked, again, between, back, left = run_on(device, THERE_AND_BACK).json
    assert planned == [[device, device], [["x", 4 << 20], ["y", 1 << 20]], False]
    assert parked == [["cpu", "cpu"], True, "park", 5 << 20]
    assert "nothing is done" in again
    assert between == ["cpu", "cpu"]
    assert back == [device, "cpu"]
    assert left == ["y"]


CHANGED = PRELUDE + """
offer = offers.make(Direction.PARK, ("x",))
ns["x"] = torch.ones(1 << 19, device=DEVICE)
changed = offers.take_up(offer.token)
kept = where()[0]
offers.take_up(changed.token)
print(json.dumps([type(changed).__name__, changed.token != offer.token, changed.parking.nbytes, kept, where()[0]]))
"""


def test_what_has_changed_meanwhile_is_offered_anew(run_on):
    assert run_on("cuda", CHANGED).json == ["MoveOffer", True, 2 << 20, "cuda", "cpu"]


NO_ROOM = PRELUDE + """
del ns["x"], ns["y"]
torch.cuda.empty_cache()
ns["x"] = torch.ones(40 << 18, device=DEVICE)
offers.take_up(offers.make(Direction.PARK, ("x",)).token)
offer = offers.make(Direction.RESTORE, ("x",))
before = offer.parking.obstacles
ns["other"] = torch.ones(40 << 18, device=DEVICE)
try:
    offers.take_up(offer.token)
except InputError as refusal:
    late = str(refusal)
print(json.dumps([before, late, ns["x"].device.type]))
"""


def test_what_has_no_room_any_more_stays_where_it_is_and_says_why(run_on):
    before, late, where = run_on("cuda", NO_ROOM, SIMGPU_MEM_MB="64").json
    assert before == []
    assert "nothing was moved" in late
    assert where == "cpu"


REBOUND = PRELUDE + """
kept = ns["x"]
offers.take_up(offers.make(Direction.PARK, ("x",)).token)
ns["x"] = 1
offers.take_up(offers.make(Direction.RESTORE, ("x",)).token)
print(json.dumps([kept.device.type, parking.parked_names()]))
"""


def test_what_was_parked_comes_back_also_if_its_name_means_something_else_now(run_on):
    assert run_on("cuda", REBOUND).json == ["cuda", []]


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("names", [(), ("nothing",), ("x",)])
def test_what_cannot_be_moved_is_refused_with_words(shell, direction, names):
    shell.run_cell("import torch\nx = torch.zeros(1000)")
    with pytest.raises(InputError, match=r"nothing|no name"):
        MoveOffers(shell).make(direction, names)


@pytest.mark.parametrize("token", ["", "another", "0" * 32])
def test_an_unknown_token_does_nothing(shell, token):
    with pytest.raises(InputError, match="nothing is done"):
        MoveOffers(shell).take_up(token)
