"""Run pytest in several environments and vitest, and end with a line that counts all tests.

    python tests/run_all.py "IPython 9:.venv/bin/python:tests" ...      name : Python, or npm : folder of tests

Kernels get the machine to themselves, one test after another; the other tests of a folder run on two cores before them.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def run(name: str, python: str, tests: str) -> tuple[int, Counter]:
    """The exit status and the counts of one environment."""
    print(f"\n== {name}: {tests}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        if python == "npm":
            return run_vitest(tests, Path(folder) / "report.json")
        command = [python, "-m", "pytest", tests, f"--junitxml={report}", "-q", "--ignore=tests/benchmarks"]
        if tests.startswith("tests/lab"):
            return run_pytest(command, report)
        command += ["--ignore=tests/lab"]
        if tests != "tests":
            return run_pytest(command, report)
        plain = run_pytest([*command, "-m", "not kernel", "-n", "2", "--dist", "loadfile"], report)
        kernels = run_pytest([*command, "-m", "kernel"], report)
    return plain[0] or kernels[0], plain[1] + kernels[1]


def run_pytest(command: list[str], report: Path) -> tuple[int, Counter]:
    """One run of pytest, counted from its report."""
    report.unlink(missing_ok=True)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "GPUMEM_OLDEST_PYTHON": str(ROOT / ".venv-oldest/bin/python")}
    status = subprocess.run(command, cwd=ROOT, env=env).returncode
    counts: Counter = Counter()
    if report.exists():
        suite = ElementTree.parse(report).getroot().find("testsuite")
        if suite is not None:
            counts = Counter({key: int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")})
    return status, counts


def run_vitest(folder: str, report: Path) -> tuple[int, Counter]:
    """The same for the TypeScript of a folder."""
    command = ["npx", "--no-install", "vitest", "run", "--reporter=dot", "--reporter=json", f"--outputFile.json={report}"]
    status = subprocess.run(command, cwd=ROOT / folder).returncode
    if not report.exists():
        return status or 1, Counter()
    found = json.loads(report.read_text())
    skipped = found["numPendingTests"] + found.get("numTodoTests", 0)
    # a file that cannot be loaded has no tests, but is a failure
    broken = sum(suite["status"] == "failed" and not suite["assertionResults"] for suite in found["testResults"])
    counts = {"tests": found["numTotalTests"], "failures": found["numFailedTests"], "errors": broken, "skipped": skipped}
    return status, Counter(counts)


def main() -> int:
    statuses, lines, total = [], [], Counter()
    for argument in sys.argv[1:]:
        name, python, tests = argument.split(":")
        status, counts = run(name, python, tests)
        statuses.append(status)
        total += counts
        lines.append(f"{name} {counts['tests'] - counts['failures'] - counts['errors'] - counts['skipped']} passed")
    bad = total["failures"] + total["errors"]
    print(f"\n{total['tests']} tests: {', '.join(lines)}; {total['skipped']} skipped, {bad} failed")
    return 1 if any(statuses) else 0


if __name__ == "__main__":
    sys.exit(main())
