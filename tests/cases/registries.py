"""Libraries, classes, functions and the interpreter keep lists of their own."""
from __future__ import annotations

from case import Case

CASES = (
    Case(
        name="summary_cache_in_library",
        source="TylerYep/torchinfo#369",
        story="a summary of a network was printed; network and summary are deleted and the weights stay: the library has a module-level dictionary of forward passes",
        cells=(
            """\
%%writefile netsummary.py
known_passes = {}
def summary(net):
    rows = [{"layer": net, "size": net.weight.numel()}]
    known_passes[type(net).__name__] = rows
    return len(rows)
""",
            """\
import sys; sys.path.insert(0, "")
import torch
from netsummary import summary
net = torch.nn.Linear(512, 512, bias=False, device=DEVICE)
tag_tensor("weights", net.weight)
print(summary(net))
""",
            """\
del net
""",
        ),
        kept=frozenset({"weights"}),
        holders={"weights": ("netsummary", "known_passes",)},
    ),
    Case(
        name="class_keeps_instances",
        source="Shakker-Labs/ComfyUI-IPAdapter-Flux#76",
        story="switching workflows makes new attention processors; those of the old workflow stay on the device: the class has a set of all its instances",
        cells=(
            """\
class Processor:
    made = set()
    def __init__(self, name):
        self.to_k = block(name)
        Processor.made.add(self)
for index in range(2):
    current = Processor(f"p{index}")
del current
""",
        ),
        kept=frozenset({"p0", "p1"}),
        holders={"p0": ("Processor", "made",), "p1": ("Processor", "made",)},
    ),
    Case(
        name="patched_class_method",
        source="nisaruj/comfyui-daam#5",
        story="heat maps of the attention are collected by patching; afterwards every image still adds to the memory: the class's forward is the patched function, and its closure is the collector",
        cells=(
            """\
class Attention:
    def forward(self, name):
        return block(name)
def collect():
    maps, original = [], Attention.forward
    def forward(self, name):
        maps.append(original(self, name))
        return maps[-1]
    Attention.forward = forward
collect()
""",
            """\
for index in range(2):
    Attention().forward(f"map{index}");
""",
        ),
        kept=frozenset({"map0", "map1"}),
        holders={"map0": ("Attention", "forward", "maps",), "map1": ("Attention", "forward", "maps",)},
    ),
    Case(
        name="closed_at_exit",
        source="duburcqa/jiminy#679",
        story="a viewer is deleted and another made; all of them stay until the process ends: the exit registry has a bound method of each",
        cells=(
            """\
import atexit
class Viewer:
    def __init__(self, name):
        self.frame = block(name)
        atexit.register(self.close)
    def close(self):
        pass
viewer = Viewer("old")
""",
            """\
viewer = Viewer("new")
""",
        ),
        kept=frozenset({"old", "new"}),
        holders={"old": ("Viewer",), "new": ("viewer", "frame",)},
    ),
    Case(
        name="log_history_of_records",
        source="kivy/kivy#886",
        story="with logging to a file not yet switched on, memory rises with each logged line: the handler's history keeps the records, and these their arguments",
        cells=(
            """\
import logging
class History(logging.Handler):
    history = []
    def emit(self, record):
        self.history.append(record)
def setup():
    logger = logging.getLogger("train")
    logger.addHandler(History())
    logger.propagate = False
    return logger
def step():
    acts = block("error")
    raise RuntimeError("diverged")
def train():
    logger = setup()
    logger.warning("output %s", block("logged"))
    try:
        step()
    except RuntimeError:
        logger.exception("step failed")
train()
del History
""",
        ),
        kept=frozenset({"logged", "error"}),
        holders={"logged": ("train", "history",), "error": ("train", "history", "step", "acts",)},
    ),
    Case(
        name="last_seen_error",
        source="getsentry/sentry-python#3165",
        story="with error reporting switched on, a logged and handled error is not freed: a context variable of the reporter has the last error; the value lives in the thread's context, not in the variable",
        cells=(
            """\
%%writefile dedupe.py
import contextvars
last_seen = contextvars.ContextVar("last_seen", default=None)
def report(error):
    if last_seen.get() is not error:
        last_seen.set(error)
""",
            """\
import sys; sys.path.insert(0, "")
import dedupe
def step():
    acts = block("acts")
    raise RuntimeError("handled")
try:
    step()
except RuntimeError as error:
    dedupe.report(error)
""",
        ),
        kept=frozenset({"acts"}),
        holders={"acts": ("last_seen", "step", "acts",)},
    ),
    Case(
        name="cell_hook_cannot_be_removed",
        source="ipython/ipython#12214",
        story="an object that watches cells is deleted; it goes on watching and its memory stays: the shell's list of cell callbacks has its method",
        cells=(
            """\
class Watcher:
    def __init__(self):
        self.baseline = block("baseline")
    def after(self, result):
        pass
watcher = Watcher()
get_ipython().events.register("post_run_cell", watcher.after)
""",
            """\
del watcher
""",
        ),
        kept=frozenset({"baseline"}),
        holders={"baseline": ("post_run_cell", "Watcher",)},
    ),
    Case(
        name="figures_not_closed",
        source="quantopian/pyfolio#503",
        story="report functions draw figures and return nothing; memory is not given back after showing: the plotting module's manager of open figures keeps each until it is closed",
        cells=(
            """\
%%writefile plots.py
class Managers:
    figs = {}
class Figure:
    def __init__(self):
        self.lines = []
        Managers.figs[len(Managers.figs) + 1] = self
""",
            """\
import sys; sys.path.insert(0, "")
from plots import Figure
def report(name):
    figure = Figure()
    figure.lines.append({"data": block(name)})
for index in range(2):
    report(f"fig{index}")
del Figure
""",
        ),
        kept=frozenset({"fig0", "fig1"}),
        holders={"fig0": ("plots", "Managers", "figs",), "fig1": ("plots", "Managers", "figs",)},
    ),
    Case(
        name="default_argument",
        source="Theano/Theano#421",
        story="the values that a function was made with are never freed, although the function replaces them at each call: the function's defaults hold the first value; a dictionary among them collects what later calls put there",
        cells=(
            """\
initial = block("initial")
def predict(name, state=initial, memo={}):
    if name not in memo:
        memo[name] = block(name)
    return float(memo[name].sum())
value = predict("collected")
""",
            """\
del initial
""",
        ),
        kept=frozenset({"initial", "collected"}),
        holders={"initial": ("predict", "state",), "collected": ("predict", "memo",)},
    ),
)
