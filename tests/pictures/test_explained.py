"""Blocks of accounts, growth, leaks, graphs, timelines, objects in depth, and why."""
from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path

import pytest

from jupyter_gpumem import model
from jupyter_gpumem.model import Allocator, Cause, CellUse, Entry, GraphNode, Holder, NameUse, Sum, Trend, Verdict
from jupyter_gpumem.pictures import blocks, html, text

sys.path.insert(0, str(Path(__file__).parent))
import records
from records import GIB, MIB


def pinned(number, free):
    pieces = (
        model.Block(0, 8 * MIB, "allocated", 8 * MIB, Holder(f"model.{number}.weight", Cause.NAME, "model"), "cell [2], line 3"),
        model.Block(8 * MIB, free, "free"),
        model.Block(8 * MIB + free, MIB, "awaiting"),
    )
    return model.Segment("cuda:0", number << 32, 9 * MIB + free, "large", pieces)


EMPTY_SEGMENT = model.Segment("cuda:0", 99 << 32, 20 * MIB, "large", (model.Block(99 << 32, 20 * MIB, "free"),))
ALLOCATED = Sum(1000 * MIB, (
    Entry("names", 700 * MIB), Entry("graphs", 300 * MIB), Entry("dangling", 0), Entry("running", 0),
    Entry("rounding", 4 * MIB), Entry("unexplained", 0), Entry("outside", -4 * MIB, "another allocator's"),
))
RESERVED = Sum(1100 * MIB, (Entry("allocated", 1000 * MIB), Entry("awaiting", 8 * MIB), Entry("cached", 20 * MIB), Entry("fragments", 72 * MIB)))
USED = Sum(3 * GIB, (Entry("reserved", 1100 * MIB), Entry("context", None), Entry("others", GIB), Entry("unattributed", None)))
ACCOUNT = model.Account("torch", "cuda:0", ALLOCATED, RESERVED, USED, (*(pinned(n, (n + 1) * MIB) for n in range(8)), EMPTY_SEGMENT))
GROWTH = model.Growth(
    "A", "now", ((Allocator("torch", "cuda:0", GIB),), (Allocator("torch", "cuda:0", GIB + 9 * MIB),)),
    (model.Change("losses[·]", Cause.NAME, "larger", 12 * MIB, 3), model.Change("Out[3]", Cause.OUTPUT, "gone", -3 * MIB, -1)),
)
LEAK = Trend("losses[·]", Cause.NAME, (0, 4 * MIB, 8 * MIB, 12 * MIB), (0, 1, 2, 3), Verdict.LEAK)
LEAKS = model.Leaks("cell [3]", 3, Verdict.LEAK, (LEAK,), ("perhaps a list",))
GRAPH = model.Graph(
    "loss", 12 * MIB,
    (GraphNode(0, "MulBackward0", 8 * MIB, ("self float32 1024×1024", "other float32 1024×1024")),
     GraphNode(1, "ReluBackward0", 4 * MIB, ("result float32 1024×1024",)), GraphNode(2, "AddBackward0", 0),
     GraphNode(3, "w", 0, (), True)),
    ((0, 1), (0, 2), (1, 2), (2, 3)),
)
TIMELINE = model.Timeline((records.MEASURED, dataclasses.replace(records.CLEANED, peak_line="y = net(x)")), (("cuda:0", 80 * GIB),))
ALL = [ACCOUNT, GROWTH, LEAKS, GRAPH, TIMELINE, records.OBJECT, records.WHY]


def found(record, kind):
    return [block for block in blocks.blocks(record) if isinstance(block, kind)]


def rows(record, number=0):
    return found(record, blocks.Table)[number].rows


@pytest.fixture(params=["text", "html"])
def said(request):
    def words(record):
        if request.param == "text":
            return re.sub(r"\s+", " ", text.render(record))
        source = re.sub(r"<style>.*?</style>", "", html.render(record), flags=re.S)
        return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", source))

    return words


# ---------------------------------------------------------------- what all of them owe
@pytest.mark.parametrize("record", ALL, ids=lambda record: type(record).__name__)
def test_text_keeps_to_the_page_and_html_stays_small(record):
    assert max(map(len, text.render(record).splitlines())) <= 100
    assert len(html.render(record)) < 30_000


def test_every_part_that_is_drawn_has_a_colour_and_a_shade():
    kinds = ["names", "graphs", "dangling", "libraries", "running", "rounding", "unexplained", "allocated", "awaiting",
             "cached", "fragments", "private", "reserved", "context", "others", "unattributed", "tensors", "rest", "resident", "system"]
    whole = Sum(len(kinds), tuple(Entry(kind, 1) for kind in kinds))
    record = model.Account("torch", "cuda:0", whole, whole, whole)
    for segment in found(record, blocks.Bar)[0].segments:
        assert f".{segment.kind}{{" in html.render(record) or f".{segment.kind}," in html.render(record)
    assert text.render(record)


def test_hostile_names_are_text():
    evil = "<img src=x onerror=alert(1)>\x1b[2J"
    node = GraphNode(0, evil, MIB, (evil,))
    change = model.Change(evil, Cause.NAME, "new", 1, 1)
    for record in (
        model.Graph(evil, MIB, (node,), ()), dataclasses.replace(GROWTH, changes=(change,)),
        model.Why(evil, 1, (Holder(evil, Cause.NAME),), (), (evil, evil)),
        model.ObjectUse(evil, evil, 1, (NameUse(evil, evil, 1, 1),)),
    ):
        assert "<img" not in html.render(record)
        assert "\x1b" not in text.render(record) + html.render(record)


# ---------------------------------------------------------------- accounts
def test_a_sum_is_drawn_only_if_all_of_it_is_known():
    assert [bar.label for bar in found(ACCOUNT, blocks.Bar)] == ["torch cuda:0  allocated", "torch cuda:0  reserved"]


def test_a_part_that_is_unknown_is_not_nothing():
    used = dict(row[:2] for row in rows(ACCOUNT, 3))
    assert used["context and libraries"] == used["unattributed"] == "unknown"
    assert found(model.Account("t", "d", Sum(None, ()), Sum(None, ()), Sum(None, ())), blocks.Heading)[0].figure == "unknown"


def test_what_is_outside_is_told_and_not_drawn(said):
    assert "outside this allocator -4.0 MiB" in said(ACCOUNT)
    bar = found(ACCOUNT, blocks.Bar)[0]
    assert sum(segment.nbytes for segment in bar.segments) == bar.total == 1004 * MIB


def test_nothing_unexplained_is_said_but_other_parts_of_nothing_are_not():
    parts = [row[0] for row in rows(ACCOUNT)]
    assert "unexplained" in parts and "dangling" not in parts


def test_fragments_name_who_pins_them_largest_first(said):
    table = found(ACCOUNT, blocks.Table)[2]
    assert [row[1] for row in table.rows] == [f"{n}.0 MiB" for n in (8, 7, 6, 5, 4, 3)]
    assert table.rows[0][2] == "model.7.weight (8.0 MiB, made at cell [2], line 3) and 1 more"
    assert table.cut == "… and 2 more, 3.0 MiB"
    assert "36.0 MiB in 8 segments" in said(ACCOUNT), "a segment that can go back is no fragment"


def test_a_private_pool_is_no_fragment_and_has_a_line_of_its_own(said):
    free = model.Segment("cuda:0", 7 << 32, 20 * MIB, "large", (model.Block(7 << 32, 20 * MIB, "free"),), private=True)
    reserved = Sum(20 * MIB, (Entry("private", 20 * MIB, "of a graph"),))
    got = said(dataclasses.replace(ACCOUNT, segments=(free,), reserved=reserved))
    assert "private pools 20.0 MiB of a graph" in got
    assert "Fragments" not in got


def test_the_host_is_told_in_its_own_words(said):
    mine = Sum(300, (Entry("tensors", 200), Entry("rest", 100)))
    whole = Sum(1000, (Entry("resident", 300), Entry("system", 700)))
    got = said(model.Account("torch", "cpu", Sum(200, (Entry("names", 200),)), mine, whole))
    for words in ("resident memory of this process", "its tensors 200 B", "this process, resident 300 B", "other processes and the system 700 B"):
        assert words in got
    assert "reserved" not in got and "context" not in got


def test_a_partial_account_warns():
    assert any(line.warn for line in found(dataclasses.replace(ACCOUNT, partial=True), blocks.Line))
    assert not any(line.warn for line in found(ACCOUNT, blocks.Line))


# ---------------------------------------------------------------- growth
def test_growth_says_what_changed_with_signs(said):
    assert "A → now" in said(GROWTH) and "cuda:0 +9.0 MiB" in said(GROWTH)
    assert rows(GROWTH) == (("losses[·]", "larger", "+3", "+12.0 MiB"), ("Out[3]", "gone", "-1", "-3.0 MiB"))


def test_many_changes_are_cut_with_what_they_are_together():
    table = found(dataclasses.replace(GROWTH, changes=GROWTH.changes * 20), blocks.Table)[0]
    assert table.cut == "… and 10 more, +45.0 MiB"


def test_no_change_and_a_search_that_was_cut(said):
    got = said(dataclasses.replace(GROWTH, changes=(), partial=True))
    assert "no holder keeps more or less" in got and "ran out of time" in got


# ---------------------------------------------------------------- leaks
def test_a_leak_shows_its_rounds(said):
    got = said(LEAKS)
    for fact in ("a leak: it grew", "3 rounds", "0 → 4.0 MiB → 8.0 MiB → 12.0 MiB", "+4.0 MiB", "perhaps a list"):
        assert fact in got


def test_growth_per_round_is_that_of_now():
    late = dataclasses.replace(LEAK, sizes=(MIB, MIB, MIB, 2 * MIB, 4 * MIB, 8 * MIB))
    assert rows(model.Leaks("c", 5, Verdict.LEAK, (late,)))[0][1:] == ("1.0 MiB → … → 2.0 MiB → 4.0 MiB → 8.0 MiB", "about +2.3 MiB")


def test_verdicts_are_told_apart_where_they_differ():
    other = dataclasses.replace(LEAK, path="box", verdict=Verdict.UNSURE)
    assert [row[-1] for row in rows(dataclasses.replace(LEAKS, trends=(LEAK, other)))] == ["leak", "not sure"]


def test_steady_is_one_sentence():
    assert len(found(model.Leaks("c", 3, Verdict.STEADY, ()), blocks.Line)) == 1


# ---------------------------------------------------------------- graphs
def test_a_graph_shows_each_operation_once():
    assert [row[0] for row in rows(GRAPH)] == [
        "MulBackward0", "├ AddBackward0 #2", "│ w", "ReluBackward0", "AddBackward0 #2 (see above)",
    ]


def test_the_largest_are_marked_with_their_share():
    assert rows(GRAPH)[0][2:] == ("8.0 MiB", "◀ 67%")
    assert [row[3] for row in rows(GRAPH)].count("") == 3


def test_a_deep_graph_is_cut_around_what_saves_most():
    nodes = tuple(GraphNode(n, f"Op{n}", MIB if n == 4000 else 0) for n in range(5000))
    table = found(model.Graph("x", MIB, nodes, tuple((n, n + 1) for n in range(4999)), left_out=7), blocks.Table)[0]
    names = [row[0] for row in table.rows]
    assert len(names) == 40 and names[0] == "Op0" and "Op4000" in names
    assert table.cut == "… and 4967 more operations, of which 4960 save 0 B"


def test_a_tensor_without_a_graph(said):
    assert "it has no graph" in said(model.Graph("x", 0, (), ()))


# ---------------------------------------------------------------- timelines
def test_cells_in_order(said):
    got = said(TIMELINE)
    assert "cell [7] 4.0 GiB → 5.0 GiB +1.0 GiB 7.0 GiB" in got
    assert "cell [8] (failed)" in got and "y = net(x)" in got and "cuda:0 (80.0 GiB)" in got


def test_devices_get_a_column_and_old_cells_a_count():
    two = CellUse("cell [1]", (), (Allocator("torch", "cuda:0", MIB, peak=MIB), Allocator("torch", "cuda:1", MIB)))
    table = found(model.Timeline((two,) * 40), blocks.Table)[0]
    assert table.columns[1] == "device"
    assert [row[1:] for row in table.rows[:2]] == [
        ("cuda:0", "0 B → 1.0 MiB", "+1.0 MiB", "1.0 MiB"), ("cuda:1", "0 B → 1.0 MiB", "+1.0 MiB", "N/A"),
    ]
    assert table.cut == "… and 10 earlier"


def test_the_line_of_a_peak_is_said(said):
    cell = dataclasses.replace(records.MEASURED, peak_line="cell [7], line 2: y = net(x)")
    for one in (cell, dataclasses.replace(cell, brief=True)):
        assert "peak made by cell [7], line 2: y = net(x)" in said(one)


# ---------------------------------------------------------------- objects
def use(name, nbytes, *parts):
    return NameUse(name, "Linear", nbytes, max(1, len(parts)), parts=parts)


def test_parts_stand_below_what_they_are_parts_of():
    whole = model.ObjectUse("net", "Net", 9, (use(".a", 1), use(".b", 8, use(".w", 5), use(".v", 3))))
    assert [(row[0], row[2]) for row in rows(whole)] == [(".b", "8 B"), ("  .w", "5 B"), ("  .v", "3 B"), (".a", "1 B")]


def test_a_large_tree_keeps_its_largest_parts_and_says_what_was_cut():
    layers = [use(f".{n}", 1000 - n, use(".w", 600 - n), use(".b", 300 - n)) for n in range(100)]
    got = rows(model.ObjectUse("net", "Net", 99, (use(".layers", 100_000, *layers), use(".tiny", 1), use(".tinier", 1))))
    assert len(got) <= 40
    assert got[0][0] == ".layers" and got[-1] == ("… 2 more", "", "2 B")
    assert got[1][0] == "  .0" and got[1][1].endswith(", 2 parts")
    cut = [row for row in got if row[0].startswith("  … ")]
    assert len(cut) == 1 and int(cut[0][0].split()[1]) == 100 - sum(row[0].startswith("  .") for row in got)


# ---------------------------------------------------------------- why
WHY = model.Why("a", MIB, (Holder("a", Cause.NAME, "a", False), Holder("box['x']", Cause.NAME, "box", None)), (), ("a", "box['x']"), 3)


def test_why_says_whether_one_holder_is_enough(said):
    assert [row[2] for row in rows(WHY)] == ["no", "—"]
    assert "to free it let go of all of: a, box[" in said(WHY)
    assert "and 3 more holders" in said(WHY)


def test_no_cut_where_one_holder_frees():
    alone = dataclasses.replace(WHY, holders=(Holder("a", Cause.NAME, "a", True),), cuts=("a",), more=0)
    assert rows(alone)[0][2] == "yes"
    assert not found(alone, blocks.Line)


def test_a_search_for_why_that_was_cut_warns():
    assert any(line.warn for line in found(dataclasses.replace(WHY, partial=True), blocks.Line))
