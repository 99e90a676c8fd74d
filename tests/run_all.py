"""Run pytest in several environments, and end with a line that counts all tests.

    python tests/run_all.py "IPython 9:.venv/bin/python:tests" ...      name : Python : folder of tests
"""
from __future__ import annotations

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
        command = [python, "-m", "pytest", tests, f"--junitxml={report}", "-q", "--ignore=tests/benchmarks"]
        env = {**os.environ, "PYTHONPATH": str(ROOT), "GPUMEM_OLDEST_PYTHON": str(ROOT / ".venv-oldest/bin/python")}
        status = subprocess.run(command, cwd=ROOT, env=env).returncode
        counts: Counter = Counter()
        if report.exists():
            suite = ElementTree.parse(report).getroot().find("testsuite")
            if suite is not None:
                counts = Counter({key: int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")})
    return status, counts


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
