"""A few generated sessions: with us, the same work can always be run again without a restart."""
from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from made import HABITS, make

PLAYED = Path(__file__).with_name("played.py")
SEEDS = range(20)


@cache
def results() -> dict[int, dict]:
    """The sessions with us, by two processes side by side."""
    command = [sys.executable, "-W", "ignore", str(PLAYED), "ours"]
    halves = [
        subprocess.Popen([*command, str(half), str(len(SEEDS)), "2"], stdout=subprocess.PIPE, text=True) for half in range(2)
    ]
    lines = [line for half in halves for line in half.communicate()[0].splitlines() if line.startswith("{")]
    return {row["seed"]: row for row in map(json.loads, lines)}


@pytest.mark.xdist_group("sessions")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_work_runs_again(seed, compiler):
    got = results()[seed]
    assert "fault" not in got, got["fault"]
    assert got["again"] is None, f"{make(seed).habits}\n{got['cleaning']}"


def test_a_seed_makes_one_session():
    assert make(3) == make(3) != make(4)


def test_each_habit_is_met():
    """Among the sessions that the benchmark plays."""
    assert {habit for seed in range(1000) for habit in make(seed).habits} == {"begin", *HABITS}
