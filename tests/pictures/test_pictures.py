"""What both renderers owe, whatever the record: the same facts, honest figures, and no surprises from names."""
from __future__ import annotations

import dataclasses
import html as markup
import re
import sys
from pathlib import Path

import pytest

from jupyter_gpumem import model
from jupyter_gpumem.model import Action, Allocator, Cause, Process, Step
from jupyter_gpumem.pictures import blocks, html, text

sys.path.insert(0, str(Path(__file__).parent))
import records
from records import GIB, MIB


def words(source):
    """The visible words of an HTML fragment."""
    return markup.unescape(re.sub(r"<[^>]+>", " ", re.sub(r"<style>.*?</style>", "", source, flags=re.S)))


RENDERERS = {"text": text.render, "html": lambda record: words(html.render(record))}


@pytest.fixture(params=RENDERERS)
def said(request):
    return lambda record: re.sub(r"\s+", " ", RENDERERS[request.param](record))


def snapshot(*devices, allocators=(), holdings=(), **more):
    return model.Snapshot(1.0, ("cuda:0",), devices, allocators, holdings, **more)


def parts(device, *allocators):
    bar = next(b for b in blocks.device_blocks(device, allocators) if isinstance(b, blocks.Bar))
    return {segment.kind: segment.nbytes for segment in bar.segments}


def test_peak_is_said_for_a_device_that_the_driver_knows_too(said):
    assert "torch: allocated 4.0 GiB, cached 1.0 GiB, peak 6.0 GiB" in said(records.SNAPSHOT)


def test_device_that_no_driver_describes(said):
    got = said(snapshot(allocators=(Allocator("torch", "xpu:0", GIB), Allocator("jax", "xpu:0", MIB, 2 * MIB))))
    assert "xpu:0" in got
    assert "torch: allocated 1.0 GiB, cached N/A, peak N/A" in got
    assert "jax: allocated 1.0 MiB, cached 1.0 MiB" in got


def test_a_snapshot_of_nothing_says_so(said):
    got = said(snapshot())
    assert "no device could be read" in got
    assert "none holds memory" in got
    assert "nothing: a name of yours" in got


def test_sizes_that_the_driver_keeps_to_itself(said):
    silent = dataclasses.replace(records.GPU, processes=(Process(1, None, own=True), Process(2, None)), reserved=None)
    assert parts(silent, records.POOL) == {
        "allocated": 4 * GIB, "cached": GIB, "context": None, "others": None, "unattributed": 4 * GIB,
        "reserved": None, "free": 70 * GIB,
    }
    got = said(snapshot(silent, allocators=(records.POOL,)))
    for fact in ("context and libraries N/A", "other processes N/A", "driver N/A", "pid 2 N/A"):
        assert fact in got


def test_unreadable_process_list_is_not_an_empty_one():
    assert parts(dataclasses.replace(records.GPU, processes=None), records.POOL)["others"] is None
    assert "others" not in parts(dataclasses.replace(records.GPU, processes=()), records.POOL)


def test_nothing_is_counted_twice_where_we_are_listed_under_another_id():
    device = dataclasses.replace(records.GPU, processes=(Process(99, 8 * GIB),))  # 5 GiB of it are ours
    got = parts(device, records.POOL)
    assert got["context"] is None
    assert sum(size or 0 for size in got.values()) == device.total


def test_instances_stand_below_their_gpu(said):
    instance = model.Device("MIG-1", "mig", 0, "slice", 10, 1, 9, parent="GPU-1")
    got = said(snapshot(records.MUTE, records.HOST, records.GPU, instance))
    assert got.index("Silent GPU") < got.index("NVIDIA A100") < got.index("MIG instance 0") < got.index("Host memory")


def test_many_processes_are_counted(said):
    crowd = tuple(Process(100 + n, MIB, "graphics") for n in range(7))
    got = said(snapshot(dataclasses.replace(records.GPU, processes=crowd)))
    assert "pid 103 1.0 MiB (graphics) and 3 more" in got


def test_a_small_share_is_not_none():
    held = (records.holding("big", GIB, name="big"), records.holding("tiny", 1024, name="tiny"))
    table = next(b for b in blocks.blocks(snapshot(holdings=held)) if isinstance(b, blocks.Table))
    assert [row[3] for row in table.rows] == ["100%", "<1%"]


def test_a_search_that_was_cut_is_no_explanation(said):
    held = (records.holding("x", cause=Cause.UNKNOWN),)
    assert "the search ran out of time" in said(snapshot(holdings=held, partial=True))
    assert "Python cannot see" in said(snapshot(holdings=held))


def test_an_action_that_failed_is_not_shown_as_done(said):
    plan = model.Plan((Action(Step.OUTPUT, "Out[8]", MIB), Action(Step.NAME, "acts", MIB)), ("cuda:0",))
    got = said(model.Report(plan, plan.actions[1:], MIB, (), (), faults=("forget output Out[8]: KeyError: 8",)))
    assert "forget Out[8] 1.0 MiB NOT DONE" in got
    assert got.count("NOT DONE") == 1
    assert "1.0 MiB of 2.0 MiB planned" in got
    assert "jupyter_gpumem: forget output Out[8]" in got


def test_unknown_reserve_is_not_zero():
    before, after = (Allocator("torch", "cuda:0", 0, GIB),), (Allocator("torch", "cuda:0", 0, None),)
    heading = blocks.blocks(model.Report(records.PLAN, (), 0, before, after))[0]
    assert "driver" not in heading.figure


def test_two_frameworks_on_one_device_are_two_changes(said):
    before = (Allocator("torch", "cuda:0", GIB), Allocator("jax", "cuda:0", 3 * GIB))
    after = (Allocator("torch", "cuda:0", 2 * GIB), Allocator("jax", "cuda:0", 3 * GIB))
    got = said(model.CellUse("cell [1]", before, after))
    assert "torch cuda:0 1.0 GiB → 2.0 GiB (+1.0 GiB)" in got
    assert "jax cuda:0 3.0 GiB → 3.0 GiB (unchanged)" in got


def test_a_device_that_went_away_is_not_empty(said):
    assert "cuda:0 1.0 GiB → N/A" in said(model.CellUse("cell [1]", (Allocator("torch", "cuda:0", GIB),), ()))


def test_names_that_were_kept_are_told_beside_the_clean_up(said):
    got = said(records.CLEANED)
    assert "net Linear, 2 storages" in got
    assert got.count("acts") == 1, "it was made and deleted: one line is enough"


def test_a_failed_cell_in_one_line(said):
    assert "gpumem cell [7] (failed): " in said(dataclasses.replace(records.BRIEF, failed=True))


@pytest.mark.parametrize("name", ["brief", "notice"])
def test_a_single_line_costs_little_in_the_notebook(name):
    source = html.render(records.ALL[name])
    assert len(source) < 500
    assert "<style" not in source


@pytest.mark.parametrize("record", [records.BRIEF, records.SNAPSHOT], ids=["line", "page"])
def test_control_characters_are_visible(record, said):
    evil = "a\n\x1b[2J\u202e\u200b\ud800"
    if record is records.BRIEF:
        record = dataclasses.replace(record, title=evil)
    else:
        record = dataclasses.replace(record, holdings=(records.holding(evil, name=evil),), notes=(evil,))
    got = said(record)
    assert r"a\n\x1b[2J\u202e\u200b\ud800" in got
    assert not set("\x1b\u202e\u200b\ud800") & set(got)
    got.encode()


def test_headings_stay_out_of_the_table_of_contents():
    assert "<h4>" not in html.render(records.SNAPSHOT)
    assert '<h4 class="jp-toc-ignore">' in html.render(records.SNAPSHOT)


def test_text_keeps_to_the_page():
    path = "trainer.callbacks[3].cache.entries['validation'].activations[17].detached.copy"
    held = [dataclasses.replace(records.holding(path, cause=Cause.OUTPUT, tensor_bytes=4096), unseen=3)]
    for record in [*records.ALL.values(), snapshot(records.GPU, allocators=(records.POOL,), holdings=tuple(held))]:
        if record not in (records.BRIEF, records.NOTICE):
            assert max(map(len, text.render(record).splitlines())) <= 100


def test_wide_letters_keep_the_columns():
    uses = (model.NameUse("数据", "Tensor", MIB, 1), model.NameUse("plain", "Tensor", MIB, 1))
    rows = text.render(model.ObjectUse("x", "dict", MIB, uses)).splitlines()[-2:]
    assert rows == ["  数据   Tensor, 1 storage  1.0 MiB", "  plain  Tensor, 1 storage  1.0 MiB"]


def test_many_small_parts_do_not_overrun_the_bar():
    device = dataclasses.replace(records.GPU, used=80 * GIB - 5, free=2, reserved=3, processes=(Process(2, 80 * GIB - 8),))
    bar = next(line for line in text.render(snapshot(device)).splitlines() if line.startswith("  ["))
    assert len(bar) == 64


def test_a_large_snapshot_stays_small():
    held = tuple(records.holding(f"{'deep.' * 20}{cause.value}{n}", cause=cause) for cause in Cause for n in range(200))
    crowd = tuple(dataclasses.replace(records.GPU, uuid=f"GPU-{n}", alias=f"cuda:{n}") for n in range(4))
    assert len(html.render(snapshot(*crowd, holdings=held))) < 30_000
    assert "… and 194 more, 194.0 MiB" in text.render(snapshot(holdings=held))
