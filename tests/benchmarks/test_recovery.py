"""What each way of cleaning up gives back over all leak cases, without a restart, in bytes of the simulated CUDA.

A case says itself what nobody holds and may go, what a user's object holds, and what hangs in a cycle through C++ that
no collector can break. The ways that are told no names are judged by the first kind, and must leave the second alone;
for those that delete all names, everything may go. ``ipyexperiments`` (0.1.29) is one of them: it takes part where it
is installed, on the mock NVML.
"""
from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).resolve().parents[1] / "cases"
sys.path.insert(0, str(CASES))
import recover  # noqa: E402
from collected import CASES as ALL  # noqa: E402

MIB = 1 << 20
BY_NAME = {case.name: case for case in ALL}


def ran(way, env):
    """The rows of all cases, by two processes side by side."""
    command = [sys.executable, "-W", "ignore", str(CASES / "recover.py"), way]
    halves = [subprocess.Popen([*command, f"{half}/2"], stdout=subprocess.PIPE, text=True, env=env) for half in range(2)]
    return [json.loads(line) for half in halves for line in half.communicate()[0].splitlines() if line.startswith("{")]


def summed(rows, kind):
    """Bytes of the blocks of a kind before and after, and in how many cases all of them are gone."""
    before = after = whole = 0
    for row in rows:
        tags = kind(BY_NAME[row["name"]])
        before += sum(nbytes for tag, nbytes in row["before"].items() if tag in tags)
        after += sum(nbytes for tag, nbytes in row["after"].items() if tag in tags)
        whole += not any(tag in tags for tag in row["after"])
    return before, after, whole


def declared(case):
    return case.freed


def everything(case):
    return case.freed | case.kept | case.optional


def holders_keep(case):
    return case.kept


@pytest.mark.parametrize("way", recover.WAYS)
@pytest.mark.timeout(1800)
def test_bytes_given_back(row, compiler, nvml_machine, nvml_env, way):
    env = dict(os.environ)
    if way == "ipyexperiments":
        if importlib.util.find_spec("ipyexperiments") is None:
            row(f"recovered by {way}", "it is not installed", "-")
            return
        nvml_machine.put("gpu 0 uuid=GPU-0 total=1G used=0\n")
        env.update(nvml_env)
    else:
        env.pop("NVML_MOCK_STATE", None)
    rows = ran(way, env)
    deletes = way in recover.DELETING
    before, after, whole = summed(rows, everything if deletes else declared)
    kept, still, _ = summed(rows, holders_keep)
    stayed, named = sum(sum(r["after"].values()) for r in rows), sum(r["named"] for r in rows)
    of = "of all" if deletes else "of what nobody holds"
    said = f"{(before - after) / MIB:.0f} / {before / MIB:.0f} MiB {of}, {whole} of {len(rows)} cases in full"
    lost = "" if deletes else f", {(kept - still) / MIB:.0f} MiB lost"
    row(f"recovered by {way}", f"{said}{lost}; {stayed / MIB:.0f} MiB stay, {100 * named / (stayed or 1):.0f} % named", "100 %" if way == "%gpufree" else "-")
    broken = {r["name"]: r["notes"] for r in rows if r["notes"]}
    if broken:
        row("  its last cell failed in", f"{len(broken)} cases", "0")
    if way == "%gpufree":
        unnamed = {r["name"] for r in rows if r["named"] < sum(r["after"].values())}
        assert (after, kept - still, broken, unnamed) == (0, 0, {}, set())
