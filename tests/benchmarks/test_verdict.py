"""Why there was no memory: generated shortages, each with one built cause, and what the verdict calls them."""
from __future__ import annotations

import collections

import pytest

SEEDS = 6
SOURCE = """
import json, os, tempfile
os.environ["IPYTHONDIR"] = tempfile.mkdtemp()
from analysis.verdict import shortages
print(json.dumps([shortages.run(NAMES, range(1, 1 + SEEDS)), shortages.TRUTH]))
"""
GROUPS = [
    ["step", "names before", "tensor"],
    ["dangling", "old error", "fragments"],
    ["others", "others grow", "leak"],
    ["leak in a cell", "together", "untold"],
]


@pytest.fixture(scope="module")
def judged():
    return []


@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0])
def test_shortages(run_on, nvml_machine, nvml_env, judged, names):
    nvml_machine.put("gpu 0 total=256M used=0 reserved=0\n")
    source = f"NAMES, SEEDS = {names!r}, {SEEDS}\n{SOURCE}"
    found, truth = run_on("cuda", source, **nvml_env, SIMGPU_CONTEXT_MB="8").json
    assert len(found) == len(names) * SEEDS
    judged += [(one["name"], truth[one["name"]], one["reason"]) for one in found]


def test_confusion(row, judged):
    if len(judged) < 60:
        pytest.skip("only with all shortages")
    for name in dict.fromkeys(name for name, _, _ in judged):
        said = collections.Counter(reason for of, _, reason in judged if of == name)
        truth = next(truth for of, truth, _ in judged if of == name)
        row(f"verdict: {name}, built as {truth}", ", ".join(f"{reason} {n}" for reason, n in said.items()), f"{truth} {SEEDS}")
    right = sum(truth == reason for _, truth, reason in judged)
    row("verdicts that are right", f"{right} of {len(judged)} ({right / len(judged):.1%})", "95%")
    assert right >= 0.95 * len(judged)
