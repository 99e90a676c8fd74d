"""What was agreed to is done, and nothing else."""
from __future__ import annotations

import gc
import weakref

import pytest
import torch

from jupyter_gpumem.actions.offers import Offer, Offers
from jupyter_gpumem.actions.planning import Request
from jupyter_gpumem.errors import InputError
from jupyter_gpumem.model import Report


@pytest.fixture
def offers(shell):
    shell.run_cell("import torch\nx = torch.zeros(1000)\ny = torch.zeros(10)")
    return Offers(shell)


def plan_for(*names, dangling=False):
    return Request(watched=("cpu",), names=names, dangling=dangling)


def test_an_offer_changes_nothing_and_taking_it_up_does_what_it_says(shell, offers):
    offer = offers.make(plan_for("x"))
    assert next((action.step.value, action.target, action.nbytes) for action in offer.plan.actions) == ("delete name", "x", 4000)
    assert "x" in shell.user_ns
    report = offers.take_up(offer.token)
    assert isinstance(report, Report)
    assert report.freed == 4000
    assert "x" not in shell.user_ns
    assert "y" in shell.user_ns


def test_a_token_is_good_once(offers):
    offer = offers.make(plan_for("x"))
    offers.take_up(offer.token)
    with pytest.raises(InputError, match="nothing is done"):
        offers.take_up(offer.token)


@pytest.mark.parametrize("token", ["", "another", "0" * 32])
def test_an_unknown_token_does_nothing(shell, offers, token):
    with pytest.raises(InputError, match="nothing is done"):
        offers.take_up(token)
    assert "x" in shell.user_ns


def test_a_name_that_means_something_else_now_is_offered_anew(shell, offers):
    offer = offers.make(plan_for("x"))
    shell.run_cell("x = torch.ones(5000)")
    changed = offers.take_up(offer.token)
    assert isinstance(changed, Offer)
    assert changed.plan.actions[0].nbytes == 20_000
    assert shell.user_ns["x"].numel() == 5000, "nothing is done"
    assert offers.take_up(changed.token).freed == 20_000


def test_an_output_that_came_since_is_not_forgotten(shell, offers):
    shell.run_cell("torch.zeros(77)", store_history=True)
    offer = offers.make(plan_for(dangling=True))
    shell.run_cell("torch.zeros(99)", store_history=True)
    changed = offers.take_up(offer.token)
    assert isinstance(changed, Offer)
    assert len(changed.plan.actions) > len(offer.plan.actions)
    assert isinstance(shell.user_ns["_"], torch.Tensor)


def test_a_name_that_is_gone_is_an_error_and_nothing_else(shell, offers):
    offer = offers.make(plan_for("x", "y"))
    shell.run_cell("del x")
    with pytest.raises(InputError, match="x"):
        offers.take_up(offer.token)
    assert "y" in shell.user_ns


def test_what_has_gone_by_itself_is_no_change(shell, offers):
    shell.run_cell("kept = [torch.zeros(100), torch.zeros(200)]")
    offer = offers.make(plan_for("kept"))
    shell.run_cell("del kept[0]")
    report = offers.take_up(offer.token)
    assert isinstance(report, Report)
    assert report.freed == 800


def test_an_offer_keeps_nothing_alive(shell, offers):
    storage = weakref.ref(shell.user_ns["x"])
    offers.make(plan_for("x"))
    shell.run_cell("del x")
    gc.collect()
    assert storage() is None


def test_the_oldest_offers_are_forgotten(shell, offers):
    first = offers.make(plan_for("y"))
    for _ in range(16):
        offers.make(plan_for("x"))
    with pytest.raises(InputError, match="too old"):
        offers.take_up(first.token)
    assert "y" in shell.user_ns
