"""The wheel: what is in it, and that it changes nothing where it is installed."""
from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    pytest.importorskip("build")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    try:
        import hatchling  # noqa: F401
    except ImportError:
        command.remove("--no-isolation")
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_the_package_and_its_types(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "jupyter_gpumem/py.typed" in names
    assert not [name for name in names if name.startswith(("tests", "notebooks"))]
    assert wheel.stat().st_size < 250_000


@pytest.mark.skipif(
    not Path(os.environ.get("GPUMEM_OLDEST_PYTHON", "")).is_file(), reason="needs the environment that `make test` makes"
)
def test_installing_into_the_oldest_environment_changes_no_version(wheel):
    python = os.environ["GPUMEM_OLDEST_PYTHON"]
    command = [python, "-m", "pip", "install", "--dry-run", "--quiet", "--report", "-", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout[done.stdout.index("{") :])
    assert [item["metadata"]["name"] for item in report["install"]] in (["jupyter_gpumem"], ["jupyter-gpumem"])
