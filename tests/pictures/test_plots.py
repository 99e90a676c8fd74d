"""Figures: exact sums, small files, names that stay text, and words for those who do not see them."""
from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("plotly")

from jupyter_gpumem import model
from jupyter_gpumem.model import Allocator, Block, Cause, CellUse, Holder, Holding, Segment, Sum
from jupyter_gpumem.pictures import plots

sys.path.insert(0, str(Path(__file__).parent))
import records
from records import GIB, MIB

EVIL = "<b>x</b> %{x} $a$ <script>alert(1)</script> <a href='javascript:alert(1)'>&lt;"
NOTHING = Sum(None, ())


def holdings(paths, nbytes=lambda n: (n + 1) * 1024, device="cuda:0", cause=Cause.NAME):
    for n, path in enumerate(paths):
        tensor = model.Tensor("Tensor", (512, 512), "float32", 1)
        name = re.match(r"\w*", path)[0] if cause is Cause.NAME else None
        yield Holding("torch", device, n, nbytes(n), (tensor,), Holder(path, cause, name))


def snapshot(*held, allocators=()):
    return model.Snapshot(1.0, ("cuda:0",), (), allocators, held)


THOUSANDS = [f"cache.layers[{n % 17}].items['a rather long key of number {n}'].very.long.path.of.a.weight" for n in range(10_000)]
LARGE = snapshot(*holdings(THOUSANDS, lambda n: 1024 + (n**3 % 7919) ** 2))


def tiles(figure):
    trace = figure.data[0]
    return {n: (p, v, label) for n, p, v, label in zip(trace.ids, trace.parents, trace.values, trace.labels, strict=True)}


def sums_are_exact(found):
    inner = {}
    for parent, value, _ in found.values():
        inner[parent] = inner.get(parent, 0) + value
    return all(found[parent][1] == value for parent, value in inner.items() if parent)


# ---------------------------------------------------------------- treemap
def test_areas_sum_up_to_what_is_held():
    figure = plots.treemap(records.SNAPSHOT)
    found = tiles(figure)
    top = next(value for parent, value, _ in found.values() if not parent)
    assert top == sum(h.nbytes for h in records.SNAPSHOT.holdings) + records.POOL.cached
    assert figure.data[0].branchvalues == "total"
    assert sums_are_exact(found)


def test_paths_are_taken_apart_and_joined_where_nothing_branches():
    held = holdings(["net.layers[0].weight", "net.layers[0].bias", "net.layers[1].weight", "box['a.b[0]']", "x"])
    labels = [label for _, _, label in tiles(plots.treemap(snapshot(*held))).values()]
    assert sorted(labels) == sorted(["cuda:0", "net.layers", "[0]", ".weight", ".bias", "[1].weight", "box['a.b[0]']", "x"])


def test_what_dangles_stands_below_its_cause():
    labels = [label for _, _, label in tiles(plots.treemap(snapshot(*holdings(["Out[3]", "Out[4]"], cause=Cause.OUTPUT)))).values()]
    assert sorted(labels) == sorted(["cuda:0", "the output history", "Out", "[3]", "[4]"])


def test_the_same_path_twice_is_two_storages():
    figure = plots.treemap(snapshot(*holdings(["loss → graph (2 saved tensors)"] * 2)))
    assert [label for _, _, label in tiles(figure).values()].count("512×512 float32") == 2


@pytest.mark.parametrize("sizes", [lambda n: MIB, lambda n: 1024 + (n**3 % 7919) ** 2, lambda n: 2 ** (n % 40), lambda n: 10**9 // (n + 1)])
def test_thousands_of_storages_are_few_tiles_with_exact_sums(sizes):
    for paths in (THOUSANDS, [f"kept[{n}]" for n in range(10_000)], [f"a{n}.b.c" for n in range(10_000)]):
        held = list(holdings(paths, sizes))
        figure = plots.treemap(snapshot(*held))
        found = tiles(figure)
        assert len(found) <= 400
        assert sums_are_exact(found)
        assert next(value for parent, value, _ in found.values() if not parent) == sum(h.nbytes for h in held)
        assert len(figure.to_json()) < 150_000


def test_the_rest_is_one_tile_that_says_how_much():
    trace = plots.treemap(snapshot(*holdings([f"kept[{n}]" for n in range(10_000)], lambda n: GIB if n < 3 else 1024))).data[0]
    at = trace.labels.index("9997 more")
    assert trace.text[at] == "9.8 MiB"
    assert trace.customdata[at] == "9997 more, 9.8 MiB in 9997 storages"


def test_a_device_with_nothing_on_it_has_a_picture():
    assert "0 B held in 0 storages" in plots.alt(plots.treemap(snapshot()))


# ---------------------------------------------------------------- timeline
def cells(number, *, reserved=2 * GIB):
    for n in range(number):
        before, after = Allocator("torch", "cuda:0", n * MIB, reserved), Allocator("torch", "cuda:0", (n + 1) * MIB, reserved, 2 * GIB + n)
        yield CellUse(f"cell [{n}]", (before,), (after,))


def test_a_timeline_has_its_lines_and_units():
    figure = plots.timeline(model.Timeline(tuple(cells(3)), (("cuda:0", 4 * GIB),)))
    lines = {trace.name: trace for trace in figure.data}
    assert list(lines) == ["allocated", "reserved", "peak", "whole device"]
    assert [y * GIB for y in lines["allocated"].y[:5]] == [0, MIB, MIB, MIB, 2 * MIB]
    assert lines["allocated"].line.shape == "hv"
    assert lines["whole device"].line.dash == "dash"
    assert figure.layout.yaxis.ticksuffix == " GiB"
    assert list(figure.layout.xaxis.ticktext) == ["cell [0]", "cell [1]", "cell [2]"]
    assert "highest peak 2.0 GiB in cell [2]" in plots.alt(figure)


def test_a_device_far_larger_than_all_use_is_said_and_not_drawn():
    figure = plots.timeline(model.Timeline(tuple(cells(3)), (("cuda:0", 80 * GIB),)))
    assert "whole device" not in [trace.name for trace in figure.data]
    assert "80.0 GiB" in figure.layout.annotations[0].text


def test_each_device_has_its_row():
    both = (Allocator("torch", "cuda:0", GIB), Allocator("torch", "cuda:1", MIB))
    figure = plots.timeline(model.Timeline((CellUse("a", both, both), CellUse("b", both, ()))))
    assert {trace.yaxis for trace in figure.data} == {"y", "y2"}
    assert [trace.showlegend for trace in figure.data] == [True, False]
    assert figure.data[0].y[-1] is None, "a device that went away is not empty"
    assert (figure.layout.yaxis.ticksuffix, figure.layout.yaxis2.ticksuffix) == (" GiB", " MiB")


def test_a_device_has_no_line_before_it_was_there_and_no_row_if_it_was_never_used():
    def pool(device, nbytes):
        return Allocator("torch", device, nbytes, nbytes, nbytes)

    cells = (
        CellUse("cell [1]", (), (pool("cpu", GIB),)),
        CellUse("cell [2]", (), (pool("cuda:0", GIB), pool("cuda:1", 0))),
    )
    figure = plots.timeline(model.Timeline(cells))
    on_gpu = next(trace for trace in figure.data if trace.yaxis == "y2" and trace.name == "allocated")
    assert list(on_gpu.y) == [None, None, None, 0, 1, 1]
    assert [note.text for note in figure.layout.annotations] == ["cpu", "cuda:0"]


def test_a_timeline_of_nothing():
    assert plots.timeline(model.Timeline(())).data == ()


# ---------------------------------------------------------------- segments
STATES = [
    ("allocated", Holder("net.weight", Cause.NAME, "net")), ("free", None), ("allocated", None), ("awaiting", None),
    ("allocated", Holder("loss → graph (2 saved tensors)", Cause.NAME, "loss")), ("allocated", Holder("Out[3]", Cause.OUTPUT)),
]


def segment(number, sizes):
    start, at, found = number << 36, number << 36, []
    for n, size in enumerate(sizes):
        state, holder = STATES[n % len(STATES)]
        found.append(Block(at, size, state, size - 8, holder, "cell [2], line 3"))
        at += size
    return Segment("cuda:0", start, at - start, "large", tuple(found))


def account(*found):
    return model.Account("torch", "cuda:0", NOTHING, NOTHING, NOTHING, found)


def drawn(figure, unit, rows=None):
    """Bytes by state, of the first rows."""
    found = {}
    for trace in figure.data:
        sizes = [x for x, y in zip(trace.x, trace.y, strict=True) if rows is None or y < rows]
        found[trace.name] = found.get(trace.name, 0) + sum(sizes) * unit
    return found


def test_blocks_lie_at_their_offsets_in_the_colour_of_their_state():
    figure = plots.segments(account(segment(1, [MIB] * 6)))
    at = {trace.name: trace.base[0] for trace in figure.data}
    assert at == {"held by names": 0, "free": 1, "unexplained": 2, "freed, awaiting a stream": 3, "autograd graphs": 4, "dangling": 5}
    assert figure.layout.xaxis.ticksuffix == " MiB"
    assert figure.data[0].customdata[0] == "net.weight<br>1.0 MiB, requested 1.0 MiB, cell [2], line 3"
    assert "6.0 MiB in 1 segment; 1.0 MiB are free, of which 1.0 MiB cannot go back" in plots.alt(figure)


def test_the_map_of_many_blocks_is_small_and_its_sums_are_exact():
    found = [segment(n, [512 * (1 + (n + m) % 9) for m in range(700)]) for n in range(20)]
    figure = plots.segments(account(*found))
    assert sum(len(trace.x) for trace in figure.data) <= 1000
    assert len(figure.to_json()) < 150_000
    rows = sum(not label.startswith(("5 more",)) for label in figure.layout.yaxis.ticktext)
    largest = sorted(found, key=lambda s: -s.nbytes)[:rows]
    free = sum(s.free for s in largest)
    assert drawn(figure, MIB, rows)["free"] == free
    assert sum(drawn(figure, MIB, rows).values()) == sum(s.nbytes for s in largest)


def test_segments_beyond_the_rows_are_one_row():
    figure = plots.segments(account(*(segment(n, [MIB] * 2) for n in range(100))))
    labels = figure.layout.yaxis.ticktext
    assert len(labels) == 61
    assert labels[-1] == "40 more, 80.0 MiB (not to scale)"
    row = sum(x for trace in figure.data for x, y in zip(trace.x, trace.y, strict=True) if y == 60)
    assert row == pytest.approx(2), "as wide as the widest"


def test_an_account_without_segments():
    figure = plots.segments(account())
    assert figure.data == ()
    assert plots.alt(figure) == "cuda:0: no segments are known."


# ---------------------------------------------------------------- what all figures owe
def evil_figures():
    peak = Allocator("torch", "cuda:0", MIB, 2 * MIB, 3 * MIB)
    block = Block(0, MIB, "allocated", MIB, Holder(EVIL, Cause.NAME), EVIL)
    return [
        plots.treemap(snapshot(*holdings([EVIL, f"box['{EVIL}'].a", f"box['{EVIL}'].b"]), *holdings([EVIL], cause=Cause.OUTPUT, device=EVIL))),
        plots.timeline(model.Timeline((CellUse(EVIL, (peak,), (peak,), peak_line=EVIL),))),
        plots.segments(dataclasses.replace(account(Segment("cuda:0", 0, MIB, "large", (block,))), device=EVIL)),
    ]


FIGURES = [
    plots.treemap(records.SNAPSHOT), plots.treemap(LARGE), plots.timeline(model.Timeline(tuple(cells(3000)))),
    plots.segments(account(segment(1, [MIB] * 600))), *evil_figures(),
]


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from strings(inner) if key != "meta" else ()
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from strings(inner)


@pytest.mark.parametrize("figure", evil_figures())
def test_names_are_neither_markup_nor_templates(figure):
    found = set(strings(figure.to_dict()))
    assert any("&lt;b&gt;" in one for one in found)
    for one in found:
        assert not re.search(r"<(?!br>|extra>|/extra>)", one), one
        assert "$" not in one, "it would be a formula"
    for trace in figure.data:
        for template in (trace.hovertemplate, getattr(trace, "texttemplate", None) or ""):
            for one in [template] if isinstance(template, str) else template:
                assert set(re.findall(r"%\{(\w+)", one)) <= {"customdata", "text", "label", "y"}


@pytest.mark.parametrize("figure", FIGURES)
def test_figures_are_small_light_and_readable_on_any_paper(figure):
    source = figure.to_json()
    assert len(source) < 150_000
    assert "bdata" not in source
    assert len(figure.layout.template.to_plotly_json()["data"]) <= 1
    assert figure.layout.paper_bgcolor == figure.layout.plot_bgcolor == "rgba(0,0,0,0)"
    assert figure.layout.font.color == "#808080"


@pytest.mark.parametrize("figure", FIGURES)
def test_figures_have_a_title_with_the_sum_and_are_told_in_words(figure):
    assert re.search(r"\d [KMG]iB", figure.layout.title.text)
    assert re.search(r"\d [KMG]iB", plots.alt(figure))


def test_the_largest_names_are_in_the_words():
    held = snapshot(*holdings(["a.x", "a.y", "b", "c", "d"], lambda n: (n + 1) * MIB), *holdings(["Out[3]"], lambda n: MIB, cause=Cause.OUTPUT))
    assert plots.alt(plots.treemap(held)) == (
        "16.0 MiB held in 6 storages. Largest names: d 5.0 MiB, c 4.0 MiB, a 3.0 MiB. 1.0 MiB dangle."
    )
