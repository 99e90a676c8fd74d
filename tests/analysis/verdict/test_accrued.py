"""What has grown: by looks, by watched cells, by entries that keep their graphs; and what only looks like it."""
from __future__ import annotations

from jupyter_gpumem.analysis.growth import Kept, Mark, pattern
from jupyter_gpumem.analysis.verdict.accrued import accrued
from jupyter_gpumem.analysis.verdict.shortage import Held, Shortage
from jupyter_gpumem.model import Allocator, Baseline, Cause, CellUse, NameUse


def kept(path, nbytes=10, saved=False, parameter=False):
    return Held("before", nbytes, path, pattern(path), path.partition("[")[0], Cause.NAME, saved, parameter, (2,), None)


def case(*held):
    return Shortage("cuda:0", None, None, None, None, 0, None, (), None, None, 0, held, None, None, None, False)


def cell(before, after, **made):
    uses = tuple(NameUse(name, "Tensor", nbytes, 1) for name, nbytes in made.items())
    return CellUse("cell", (Allocator("torch", "cuda:0", before),), (Allocator("torch", "cuda:0", after),), uses)


GROWING = Baseline(cells=tuple(cell(10 * n, 10 * n + 10) for n in range(5)))
ENTRIES = [kept(f"cache[{n}]") for n in range(5)]


def test_a_container_that_grew_over_the_cells():
    found = accrued(case(*ENTRIES, kept("model", 1000)), GROWING, ())
    assert (found.path, found.nbytes, found.saved) == ("cache[·]", 50, False)
    assert "5 cells" in found.words


def test_no_more_than_has_grown_is_the_leaks():
    assert accrued(case(*(kept(f"cache[{n}]", 100) for n in range(5))), GROWING, ()).nbytes == 50


def test_three_cells_are_the_least():
    assert accrued(case(*ENTRIES), Baseline(cells=GROWING.cells[:2]), ()) is None
    assert accrued(case(*ENTRIES), None, ()) is None
    assert accrued(case(*ENTRIES), Baseline(cells=GROWING.cells[:3]), ()).nbytes == 30


def test_cells_that_make_new_names_are_no_leak():
    cells = tuple(cell(10 * n, 10 * n + 10, **{f"shard{n}": 10}) for n in range(5))
    assert accrued(case(*ENTRIES), Baseline(cells=cells), ()) is None


def test_a_cell_that_freed_begins_anew():
    cells = (*GROWING.cells, cell(50, 10), cell(10, 20))
    assert accrued(case(*ENTRIES), Baseline(cells=cells), ()) is None


def test_a_name_that_is_bound_larger_each_time():
    cells = tuple(cell(10 * n, 10 * n + 10, total=10 * (n + 1)) for n in range(6))
    found = accrued(case(kept("total", 60, saved=True)), Baseline(cells=cells), ())
    assert (found.path, found.saved) == ("total", True)
    assert found.nbytes == 50, "what the first one made was a new name"


def test_entries_that_keep_their_graphs_need_no_earlier_figures():
    graphs = [kept(f"losses[{n}] → graph (3 saved tensors)", 20, saved=True) for n in range(4)]
    found = accrued(case(*graphs), None, ())
    assert (found.nbytes, found.saved) == (80, True)
    assert "4 graphs" in found.words
    assert accrued(case(*graphs[:2]), None, ()) is None


def test_parameters_of_a_list_of_layers_are_none():
    layers = [kept(f"layers[{n}].weight", 100, parameter=True) for n in range(9)]
    assert accrued(case(*layers), GROWING, ()) is None


def test_looks_after_rounds_are_the_best_proof():
    def look(n):
        return Mark("m", 0.0, ("cuda:0",), (), {("seen[·]", Cause.NAME): Kept(100 * n, n)})

    found = accrued(case(*ENTRIES), GROWING, [look(n) for n in range(1, 6)])
    assert (found.path, found.nbytes) == ("seen[·]", 400)
    assert accrued(case(), None, [look(n) for n in range(1, 4)]) is None


def test_other_devices_cells_prove_nothing():
    cells = tuple(CellUse("c", (Allocator("torch", "cuda:1", 10 * n),), (Allocator("torch", "cuda:1", 10 * n + 10),)) for n in range(5))
    assert accrued(case(*ENTRIES), Baseline(cells=cells), ()) is None
