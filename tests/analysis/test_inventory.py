"""Live storages, each once."""
from __future__ import annotations

import gc

import torch

from jupyter_gpumem.analysis.inventory import collections_waiting, is_watched, take_inventory


def stored(tensor):
    with take_inventory() as seen:
        return seen.storages.get(("cpu", tensor.untyped_storage()._cdata)) is not None


def test_a_storage_is_counted_once_however_many_tensors_share_it():
    tensor = torch.zeros(100)
    views = [tensor[i:] for i in range(5)]
    with take_inventory() as seen:
        found = seen.storages["cpu", tensor.untyped_storage()._cdata]
        assert found.part.nbytes == 400
        assert len(found.tensors) >= 1 + len(views)


def test_gradients_and_what_a_graph_saved_are_seen():
    weight = torch.ones(50, requires_grad=True)
    loss = (weight.exp() * 2).sum()
    loss.backward(retain_graph=True)
    with take_inventory() as seen:
        sizes = [s.part.nbytes for s in seen.storages.values()]
    assert sizes.count(200) >= 3, "weight, its gradient, the saved output"
    del loss


def test_nothing_is_held_after_the_look():
    tensor = torch.zeros(10)
    reference = torch.multiprocessing.reductions.StorageWeakRef(tensor.untyped_storage())
    with take_inventory():
        pass
    del tensor
    assert reference.expired()


def test_automatic_collections_wait_and_the_setting_comes_back():
    for enabled in (True, False):
        (gc.enable if enabled else gc.disable)()
        with collections_waiting():
            assert not gc.isenabled()
        assert gc.isenabled() is enabled
    gc.enable()


def test_a_type_stands_for_all_its_devices():
    assert is_watched("cuda:1", ("cuda",))
    assert is_watched("cuda:1", ("cuda:1", "cpu"))
    assert not is_watched("cuda:1", ("cuda:0",))
    assert is_watched("xpu:0", None)
