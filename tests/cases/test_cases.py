"""Each leak case, on host memory and on the simulated CUDA."""
from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from collected import CASES

DRIVER = Path(__file__).with_name("driver.py")
DEVICES = ("cpu", "cuda")


@cache
def results(device: str) -> dict[str, dict]:
    """All cases of a device, run by two processes side by side."""
    halves = [
        subprocess.Popen([sys.executable, "-W", "ignore", str(DRIVER), device, f"{half}/2"], stdout=subprocess.PIPE, text=True)
        for half in range(2)
    ]
    lines = [line for half in halves for line in half.communicate()[0].splitlines() if line.startswith("{")]
    return {row["name"]: row for row in map(json.loads, lines)}


PAIRS = [(case, device) for device in DEVICES for case in CASES if case.fits(device)]


@pytest.fixture(params=PAIRS, ids=[f"{device}-{case.name}" for case, device in PAIRS])
def ran(request, compiler):
    case, device = request.param
    return case, results(device)[case.name]


@pytest.mark.xdist_group("cases")
@pytest.mark.timeout(900)
def test_frees_what_nobody_holds_and_names_the_rest(ran):
    case, got = ran
    assert not got["notes"], got["notes"]
    before, after = set(got["before"]), set(got["after"])
    claimed = case.freed | case.kept | case.optional
    assert before == claimed, "the case no longer leaves what it says"
    assert not case.freed & after, f"still held: {sorted(case.freed & after)}\n{got['shown']}"
    assert case.kept <= after, f"lost: {sorted(case.kept - after)}\n{got['shown']}"
    assert not got["changed"], f"names that are no longer what they were: {got['changed']}"
    for tag, words in case.holders.items():
        missing = [word for word in words if word not in got["why"][tag]]
        assert not missing, f"{tag}: {got['why'][tag]!r} lacks {missing}"
