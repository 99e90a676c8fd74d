"""What the shell keeps because it was shown or run."""
from __future__ import annotations

from case import Case

CASES = (
    Case(
        name="last_expression",
        source="ipython/ipython#11204",
        story="a large array was only looked at in a cell; deleting its name gives nothing back: the output history holds it: Out, _ and _n, the display hook, the hidden namespace",
        cells=(
            """\
array, other = block("shown"), block("other")
""",
            """\
array
""",
            """\
del array
""",
        ),
        freed=frozenset({"shown"}),
        kept=frozenset({"other"}),
        holders={"shown": ("Out[2]",), "other": ("other",)},
    ),
    Case(
        name="output_kept_on_purpose",
        source="scipp/scipp#2737",
        story="after clearing the output history a result is missing that had been fetched from it under a name: 'best' was bound to an earlier output: a name holds it, the history only holds the other one",
        cells=(
            """\
block("best")
""",
            """\
block("rest")
""",
            """\
best = Out[1]
""",
        ),
        freed=frozenset({"rest"}),
        kept=frozenset({"best"}),
        holders={"best": ("best",), "rest": ("Out[2]",)},
    ),
    Case(
        name="table_of_results_shown",
        source="NVIDIA/cudf#30",
        story="a table was the last line of a cell; after deleting it the device memory of its columns is still used: the output history holds the table, whose object column holds the tensors where the collector does not look",
        cells=(
            """\
import numpy as np, pandas as pd
class Prediction:
    def __init__(self, tensor):
        self.tensor = tensor
    def __repr__(self):
        return "Prediction"
frame = pd.DataFrame({"name": ["a"], "value": [Prediction(block("cell"))]})
grid = np.empty(1, dtype=object)
grid[0] = Prediction(block("array"))
""",
            """\
frame
""",
            """\
del frame
""",
        ),
        freed=frozenset({"cell"}),
        kept=frozenset({"array"}),
        holders={"cell": ("Out[2]",), "array": ("grid",)},
    ),
    Case(
        name="timed_expression",
        source="ipython/ipython#11707",
        story="a timed call on one line returns a tensor; nobody stored it and it stays: the timing magic hands the value to the shell, which keeps it as an output",
        cells=(
            """\
def infer():
    return block("value")
""",
            """\
%time infer()
""",
        ),
        freed=frozenset({"value"}),
        holders={"value": ("Out[2]",)},
    ),
    Case(
        name="closed_widget",
        source="jupyter-widgets/ipywidgets#3544",
        story="a widget was shown, closed and deleted, and a weak reference to it is still alive: the output history holds the shown object, with its observers and what these close over",
        cells=(
            """\
import traitlets
class Slider(traitlets.HasTraits):
    value = traitlets.Int(0)
    def close(self):
        self.closed = True
def make():
    image = block("image")
    slider = Slider()
    slider.observe(lambda change: image.fill_(change["new"]), "value")
    return slider
""",
            """\
widget = make(); widget
""",
            """\
widget.close()
del widget
""",
        ),
        freed=frozenset({"image"}),
        holders={"image": ("Out[2]", "Slider",)},
    ),
    Case(
        name="script_function_in_use",
        source="ipython/ipython#11225",
        story="after a clean-up of what a run script left, its function fails: a variable of the script is missing: the function's own globals are the script's module: they are in use as long as the function has a name",
        cells=(
            """\
import builtins
builtins.make_block = block
""",
            """\
%%writefile lookup_script.py
table = make_block("table")
def lookup(index):
    return float(table[index])
""",
            """\
%run lookup_script.py
""",
            """\
del table
print(lookup(3))
""",
        ),
        kept=frozenset({"table"}),
        holders={"table": ("lookup", "table",)},
    ),
)
