"""The wheel: what is in it, and that it changes nothing where it is installed."""
from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


EXTENSION = "share/jupyter/labextensions/jupyter-gpumem/"
BUILT = ROOT / "jupyter_gpumem" / "labextension" / "static" / "style.js"


def without_node(folder):
    """Variables of a machine that has no Node."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    for name in ("node", "npm", "npx"):
        (tools / name).write_text("#!/bin/sh\necho Node was called >&2\nexit 1\n")
        (tools / name).chmod(0o755)
    return {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}


def built(source, kind, folder):
    """What ``python -m build`` makes of a source tree, offline and without Node."""
    command = [sys.executable, "-m", "build", f"--{kind}", "--no-isolation", "--outdir", str(folder), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, env=without_node(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("*.whl" if kind == "wheel" else "*.tar.gz"))


@pytest.fixture(scope="module")
def can_build():
    pytest.importorskip("build")
    pytest.importorskip("hatch_jupyter_builder")
    if not BUILT.exists():
        pytest.skip("the sidebar is not built: make demo")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory, can_build):
    return built(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


def test_the_wheel_holds_the_package_and_its_types(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "jupyter_gpumem/py.typed" in names
    assert "jupyter_gpumem/locale/zh_CN/LC_MESSAGES/jupyter_gpumem.json" in names
    assert not [name for name in names if name.startswith(("tests", "notebooks", "labextension", "jupyter_gpumem/labextension"))]
    assert wheel.stat().st_size < 500_000


def test_the_wheel_holds_the_sidebar_where_jupyterlab_looks(wheel):
    names = [name.partition(".data/data/")[2] for name in zipfile.ZipFile(wheel).namelist()]
    for name in ("package.json", "install.json", "schemas/jupyter-gpumem/plugin.json", "static/style.js"):
        assert EXTENSION + name in names
    assert not [name for name in names if name.endswith(".map")]


def test_all_javascript_is_small():
    scripts = list(BUILT.parent.glob("*.js"))
    assert scripts
    assert sum(len(gzip.compress(script.read_bytes(), 9)) for script in scripts) <= 60_000


def test_a_wheel_is_made_from_the_sdist_without_node(tmp_path, can_build, wheel):
    sdist = built(ROOT, "sdist", tmp_path)
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    again = built(source, "wheel", tmp_path)
    static = [name for name in zipfile.ZipFile(again).namelist() if "/static/" in name]
    assert static == [name for name in zipfile.ZipFile(wheel).namelist() if "/static/" in name]


def test_jupyterlab_says_that_the_installed_sidebar_is_ok(tmp_path, wheel):
    pytest.importorskip("jupyterlab")
    prefix = tmp_path / "prefix"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--ignore-installed", "--prefix", str(prefix), str(wheel)]
    subprocess.run(command, check=True, capture_output=True)
    env = {**os.environ, "JUPYTER_PATH": str(prefix / "share" / "jupyter"), "JUPYTER_CONFIG_DIR": str(tmp_path / "config")}
    listed = subprocess.run([sys.executable, "-m", "jupyter", "labextension", "list"], capture_output=True, text=True, env=env)
    (line,) = [line for line in (listed.stdout + listed.stderr).splitlines() if "jupyter-gpumem" in line]
    assert "enabled" in line
    assert "OK" in line


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
