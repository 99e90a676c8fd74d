"""The layers point one way, each foreign package has one home, and importing stays light."""
from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "jupyter_gpumem"

# Lowest first: a file imports only from rows before its own, and inside a row only from files listed before it.
ROWS = [
    ["errors", "introspect", "units", "model"],
    ["devices", "frameworks", "session", "randomness"],
    [
        "analysis.inventory",
        "analysis.references",
        "analysis.words",
        "analysis.paths",
        "analysis.roots",
        "analysis.unreached",
        "analysis.holders",
        "analysis.ancestors",
        "analysis.cuts",
        "analysis.why",
        "analysis.objects",
        "analysis.operations",
        "analysis.depth",
        "analysis.snapshot",
        "analysis.ledger",
        "analysis.names",
        "analysis.sites",
        "analysis.replay",
        "analysis.forecast",
        "analysis.account",
        "analysis.growth",
        "analysis.graphs",
        "analysis.advice.evidence",
        "analysis.advice.places",
        "analysis.advice.forwards",
        "analysis.advice.gathering",
        "analysis.advice.rules_training",
        "analysis.advice.rules_keeping",
        "analysis.advice.checkup",
        "analysis.shares",
        "analysis.sample",
        "analysis.verdict.failures",
        "analysis.verdict.shortage",
        "analysis.verdict.accrued",
        "analysis.verdict.reasons",
        "analysis.verdict.diagnosis",
    ],
    ["pictures.blocks", "pictures.explained", "pictures.diagnosed", "pictures.moved", "pictures.advised", "pictures.forecasts", "pictures.text", "pictures.html", "pictures.tiles", "pictures.graph_svg", "pictures.treemap_svg", "pictures.timeline_svg", "pictures.moments", "pictures.report", "pictures.plots"],
    ["actions.moving", "actions.emptying", "actions.planning", "actions.cleaning", "actions.offers", "actions.leaks", "actions.recording", "actions.relocation", "actions.parking", "actions.move_offers", "actions.rewind", "actions.retry", "actions.batches", "actions.budget", "actions.aftermath", "actions.watcher"],
    [
        "faces.grammar",
        "faces.calls",
        "faces.settings",
        "faces.showing",
        "faces.completion",
        "faces.plotting",
        "faces.reporting",
        "faces.api",
        "faces.retrying",
        "faces.directives",
        "faces.wire",
        "faces.live",
        "faces.verdicts",
        "faces.widgets",
        "faces.magics",
        "faces.requests",
        "faces.comm",
        "faces.extension",
        "pytest_plugin",
    ],
]
ORDER = {name: (rank, place) for rank, row in enumerate(ROWS) for place, name in enumerate(row)}
SEPARATE = {"devices", "frameworks", "session"}  # rooms of this row do not know each other
MAY_KNOW = {
    "pictures": {name for name in ORDER if name in ("model", "units") or name.startswith("pictures")},
    "actions": {name for name in ORDER if not name.startswith("pictures")},
}
HOMES = {
    "pynvml": {"devices.nvml", "devices.nvml_processes"},
    "psutil": {"devices.host", "devices.owners"},
    "torch": {f"frameworks.torch{part}" for part in ("", "_advice", "_allocator", "_budget", "_forecast", "_graph", "_history", "_lifetimes", "_loader", "_parking", "_peaks", "_random", "_versions")},
    "traitlets": {"faces.settings"},
    "IPython": {"faces.magics", "faces.showing"},
    "comm": {"faces.comm"},
    "ipykernel": {"faces.comm"},
    "jax": set(),
    "tensorflow": set(),
    "cupy": set(),
    "numpy": set(),
    "plotly": {"pictures.plots"},
    "ipywidgets": {"faces.widgets"},
}


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        if name != "__init__":
            yield name, ast.parse(path.read_text())


MODULES = list(modules())


def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "import_module":
            argument = node.args[0]
            if isinstance(argument, ast.Constant):
                yield argument.value


def room(name):
    """The room of a module: ``devices.nvml`` lives in ``devices``, ``faces.magics`` in itself."""
    return name if name in ORDER else name.split(".")[0]


def ours(tree):
    """Rooms that a module imports, as far as the name says."""
    for name in imported(tree):
        if name.startswith("jupyter_gpumem."):
            parts = name.split(".")[1:]
            yield next((whole for n in (3, 2) if (whole := ".".join(parts[:n])) in ORDER), parts[0])


@pytest.mark.parametrize(("name", "tree"), MODULES, ids=lambda x: x if isinstance(x, str) else "")
def test_imports_point_down(name, tree):
    mine = room(name)
    if mine not in ORDER:
        assert not set(ours(tree)), f"{name} only explains its folder"
        return
    for target in set(ours(tree)) - {mine}:
        assert target in ORDER, f"{name} imports {target}, which has no row"
        assert ORDER[target] < ORDER[mine], f"{name} imports {target}"
        same_row = ORDER[target][0] == ORDER[mine][0]
        assert not (same_row and mine in SEPARATE), f"{name} imports its neighbour {target}"
        assert target in MAY_KNOW.get(mine.split(".")[0], ORDER), f"{name} may not know {target}"


@pytest.mark.parametrize(("name", "tree"), MODULES, ids=lambda x: x if isinstance(x, str) else "")
def test_foreign_packages_have_one_home(name, tree):
    for target in {n.split(".")[0] for n in imported(tree)} & set(HOMES):
        assert name in HOMES[target], f"{name} imports {target}"


HEAVY = ["torch", "jax", "tensorflow", "cupy", "plotly", "ipywidgets", "pynvml", "psutil", "numpy"]


def heavy_after(code):
    code = f"{code}\nimport sys; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent)
    return done.stdout.splitlines()[-1]


LOADING = """
import os, tempfile
os.environ["IPYTHONDIR"] = tempfile.mkdtemp()
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "jupyter_gpumem")
shell.run_cell("1 + 1")
"""


@pytest.mark.parametrize("code", ["import jupyter_gpumem", "import jupyter_gpumem.faces.api", LOADING], ids=["package", "api", "loading"])
def test_import_is_light(code):
    assert heavy_after(code) == "[]"


def test_lightness_can_fail():
    assert heavy_after("import jupyter_gpumem.devices.nvml") == "['pynvml']"


def test_each_module_has_its_test_file():
    tests = Path(__file__).parent
    want = {tests / name.replace(".", "/") for name, _ in MODULES if not (PACKAGE / name.replace(".", "/")).is_dir()}
    missing = [str(w) for w in want if not w.with_name(f"test_{w.name}.py").exists()]
    assert not missing, f"modules without a test file: {missing}"
