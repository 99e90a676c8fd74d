"""Storages as tiles in tiles."""
from __future__ import annotations

import pytest

from jupyter_gpumem.model import Cause, Holder, Holding
from jupyter_gpumem.pictures.tiles import Tile, chosen_of, kind, steps, tiles_of


def tree(*paths, nbytes=10):
    top = Tile("all", "", "all", fixed=True)
    for index, path in enumerate(paths):
        holding = Holding("torch", "cuda:0", index, nbytes, (), Holder(path, Cause.NAME, path.partition(".")[0]))
        top.add([], steps(path, holding.holder.name), holding, "names")
    return top


@pytest.mark.parametrize(
    ("path", "name", "wanted"),
    [
        ("box['a.b'].w", "box", ["box", "['a.b']", ".w"]),
        ("losses[3] → graph (2 saved tensors)", "losses", ["losses", "[3]", " → graph (2 saved tensors)"]),
        ("no name: cycle", None, ["no name: cycle"]),
    ],
)
def test_the_steps_of_a_path_are_the_path(path, name, wanted):
    assert list(steps(path, name)) == wanted
    assert "".join(steps(path, name)) == path


def test_a_tile_that_fills_the_one_around_it_is_joined_with_it():
    squeezed = tree("a.layers.0.w", "a.layers.0.b").squeezed()
    assert [tile.label for tile in squeezed.inner.values()] == ["a.layers.0"]


def test_at_most_as_many_tiles_as_can_be_seen_and_none_of_the_bytes_is_lost():
    top = tree(*(f"n{index % 50}.p{index}" for index in range(5000))).squeezed()
    found = list(tiles_of(top, chosen_of(top)))
    assert len(found) <= 400
    inside = {}
    for _, around, tile in found:
        inside[around] = inside.get(around, 0) + tile.nbytes
    sizes = {number: tile.nbytes for number, _, tile in found}
    assert all(nbytes == sizes[around] for around, nbytes in inside.items() if around is not None)


def test_the_kind_of_a_storage_is_that_of_its_holder():
    assert kind(Cause.NAME, "loss → graph (1 saved tensor)") == "graphs"
    assert kind(Cause.MODULE, "lib.cache") == "libraries"
    assert kind(Cause.LAST_ERROR, "last error") == "dangling"
