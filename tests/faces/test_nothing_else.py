"""No verb changes what is not its business: random numbers, modes, settings, hooks, handlers, the environment.

There is an entry for each flag of the grammar; a flag without one fails. All verbs of a magic run one
after another in one process for each device, and what they must leave alone is looked at before and after each.
"""
from __future__ import annotations

import pytest

from jupyter_gpumem.faces import grammar

BODY = "made = torch.ones(256, device=DEVICE)\nmade * 2"
FAILS = "def fails():\n    part = torch.ones(256, device=DEVICE)\n    raise ValueError('meant')\nfails()"
VERBS = {
    "%gpumem": {
        "": "%gpumem",
        "name": "%gpumem model",
        "on": "%gpumem on\n",
        "off": "%gpumem off",
        "--why": "%gpumem --why model",
        "--dangling": "%gpumem --dangling",
        "--account": "%gpumem --account",
        "--advise": "%gpumem --advise",
        "--mark": "%gpumem --mark first",
        "--diff": "%gpumem --diff first",
        "--plot": "%gpumem --plot treemap",
        "--live": "%gpumem --live",
        "--html": "%gpumem --html report.html",
        "--json": "%gpumem --json",
        "--json-schema": "%gpumem --json-schema",
        "--limit": "%gpumem --limit 100%\n%gpumem --limit off",
        "--record": "%gpumem --record on\n%gpumem --record off",
        "--forecast": "%gpumem --forecast model(inputs)",
        "--device": "%gpumem --device cpu",
    },
    "%%gpumem": {
        "": f"%%gpumem\n{BODY}",
        "failed": f"%%gpumem\n{FAILS}",
        "--leak": f"%%gpumem --leak\n{BODY}",
        "--keep-traceback": f"%%gpumem --keep-traceback\n{FAILS}",
        "--device": f"%%gpumem --device cpu\n{BODY}",
    },
    "%gpufree": {
        "": "%gpufree",
        "names": "%gpufree spare",
        "--dry-run": "%gpufree --dry-run",
        "--to-host": "%gpufree --to-host spare",
        "--keep-output": "%gpufree --keep-output",
        "--keep-traceback": "%gpufree --keep-traceback",
        "--device": "%gpufree --device cpu",
    },
    "%gpurestore": {
        "": "%gpufree --to-host spare\n---\n%gpurestore",
        "names": "%gpufree --to-host spare\n---\n%gpurestore spare",
        "--dry-run": "%gpufree --to-host spare\n---\n%gpurestore --dry-run",
    },
    "%%gpufree": {
        "": f"%%gpufree\n{BODY}",
        "failed": f"%%gpufree\n{FAILS}",
        "--keep": f"%%gpufree --keep made\n{BODY}",
        "--to-host": f"%%gpufree --to-host made\n{BODY}",
        "--dry-run": f"%%gpufree --dry-run\n{BODY}",
        "--keep-traceback": f"%%gpufree --keep-traceback\n{FAILS}",
        "--retry": f"%%gpufree --retry 2\n{BODY}",
        "--halve": f"rows = 8\n---\n%%gpufree --retry 2 --halve rows\n{BODY}",
        "--floor": f"rows = 8\n---\n%%gpufree --retry 2 --halve rows --floor 2\n{BODY}",
        "--device": f"%%gpufree --device cpu\n{BODY}",
    },
    "(no verb)": {"": BODY, "out of memory": "def greedy():\n    raise MemoryError\ngreedy()"},
}
REFUSED = {("%gpumem", "--live")}
"""Verbs that a shell without a kernel refuses."""
OF_CUDA = {("%gpumem", "--record"), ("%gpumem", "--limit"), ("%gpufree", "--to-host"), ("%%gpufree", "--to-host")}
OF_CUDA |= {("%gpurestore", flag) for flag in VERBS["%gpurestore"]}
"""Verbs that may be refused where there is no CUDA."""

RUNNER = r"""
import contextlib, gc, io, json, locale, logging, os, random, signal, tempfile, threading, warnings
os.chdir(tempfile.mkdtemp())
os.environ["IPYTHONDIR"] = tempfile.mkdtemp()
import numpy, torch
from traitlets.config import Config
from IPython.core.interactiveshell import InteractiveShell

torch.set_num_threads(1)
config = Config(); config.HistoryManager.hist_file = ":memory:"; config.InteractiveShell.colors = "NoColor"
shell = InteractiveShell.instance(config=config)
shell.user_ns["DEVICE"] = DEVICE
backend = getattr(torch, DEVICE, None)


def run(cell):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        result = shell.run_cell(cell, store_history=True)
        error = result.error_before_exec or result.error_in_exec
        return type(error).__name__ if error is not None else None, said.getvalue()


def randoms():
    found = [random.getstate(), [str(part) for part in numpy.random.get_state()], torch.get_rng_state().tolist()]
    return found + [generator.get_state().tolist() for generator in getattr(backend, "default_generators", ())]


def hooks():
    module = torch.nn.modules.module
    of_model = {name: list(table or ()) for name, table in vars(shell.user_ns["model"]).items() if "hook" in name}
    everywhere = {name: list(vars(module)[name]) for name in vars(module) if name.startswith("_global_") and name.endswith("_hooks")}
    return of_model, everywhere, list(shell.user_ns["weight"]._backward_hooks)


def flags():
    b = torch.backends
    return [
        b.cudnn.enabled, b.cudnn.benchmark, b.cudnn.deterministic, b.cudnn.allow_tf32, b.cuda.matmul.allow_tf32,
        b.cuda.matmul.allow_fp16_reduced_precision_reduction, b.mkldnn.enabled, b.cuda.flash_sdp_enabled(),
        b.cuda.mem_efficient_sdp_enabled(), b.cuda.math_sdp_enabled(), torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(), torch.get_num_threads(), torch.is_anomaly_enabled(),
    ]


def modes():
    kind = DEVICE if DEVICE != "cpu" else "cpu"
    return [
        torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"),
        torch.is_autocast_enabled(kind), torch.is_autocast_cache_enabled(), str(torch.get_autocast_dtype(kind)),
        torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack(),
        bool(torch._C._autograd._top_saved_tensors_default_hooks(True)),
    ]


def names():
    return {n: id(v) for n, v in shell.user_ns.items() if not n.startswith("_") and n not in ("spare", "made", "rows", "fails", "greedy", "In", "Out")}


STATE = {
    "random numbers": randoms,
    "modes": modes,
    "defaults": lambda: [str(torch.get_default_dtype()), str(torch.get_default_device())],
    "device": lambda: backend.current_device() if backend is not None and DEVICE != "cpu" else None,
    "stream": lambda: str(torch.accelerator.current_stream()) if DEVICE != "cpu" else None,
    "flags": flags,
    "peak": lambda: backend.max_memory_allocated() if DEVICE != "cpu" else None,
    "hooks": hooks,
    "versions": lambda: [t._version for t in (shell.user_ns["inputs"], *shell.user_ns["model"].parameters())],
    "gradients": lambda: [id(p.grad) for p in shell.user_ns["model"].parameters()],
    "names": names,
    "warnings": lambda: ([str(f) for f in warnings.filters], id(warnings.showwarning)),
    "excepthooks": lambda: [id(sys.excepthook), id(sys.displayhook), id(sys.unraisablehook), id(threading.excepthook)],
    "tracing": lambda: [id(sys.gettrace()), id(sys.getprofile()), sys.getrecursionlimit(), sys.getswitchinterval()],
    "streams": lambda: [id(sys.stdin), id(sys.stdout), id(sys.stderr)],
    "imports": lambda: [sys.path[:], [id(f) for f in sys.meta_path], [id(f) for f in sys.path_hooks]],
    "signals": lambda: [str(signal.getsignal(s)) for s in signal.valid_signals()] + [str(signal.getitimer(signal.ITIMER_REAL))],
    "folder": os.getcwd,
    "environment": lambda: dict(os.environ),
    "locale": lambda: locale.setlocale(locale.LC_ALL),
    "logging": lambda: [logging.root.level, [id(h) for h in logging.root.handlers], logging.root.manager.disable],
    "collector": lambda: [gc.get_threshold(), gc.isenabled(), gc.get_freeze_count(), [id(c) for c in gc.callbacks], gc.get_debug()],
    "threads": lambda: sorted(t.name for t in threading.enumerate()),
    "numpy": lambda: numpy.geterr(),
}


def difference(before, after):
    # what came and what went, as far as it is a table or a list
    old, new = (flat(json.loads(found)) for found in (before, after))
    return [sorted(new - old)[:9], sorted(old - new)[:9]]


def flat(found):
    if isinstance(found, dict):
        return {f"{key}: {value}" for key, value in found.items()}
    if isinstance(found, list):
        return {text for part in found for text in (flat(part) if isinstance(part, list) else {str(part)})}
    return {str(found)}


def state():
    return {part: json.dumps(look(), default=str, sort_keys=True) for part, look in STATE.items()}


SETUP = '''
import torch
torch.manual_seed(3)
model = torch.nn.Linear(64, 64).to(DEVICE)
inputs = torch.ones(32, 64, device=DEVICE)
model(inputs).sum().backward()
handle = model.register_forward_hook(lambda module, inputs, output: None)
weight = torch.ones(4, device=DEVICE, requires_grad=True)
own = weight.register_hook(lambda gradient: None)
large = torch.zeros(2**22, device=DEVICE)
del large
torch.backends.cudnn.benchmark = True
'''
BEFORE = '''
if "spare" not in globals():
    spare = torch.ones(2**16, device=DEVICE)
class Ring:
    pass
ring = Ring(); ring.me, ring.part = ring, torch.ones(1024, device=DEVICE); ring = None
torch.ones(1024, device=DEVICE)
'''
# plotly and parts of torch add filters of warnings and a variable when they are first imported: that is their doing
with contextlib.suppress(ImportError):
    import plotly.graph_objects, plotly.tools
    plotly.graph_objects.Figure()
import torch._dynamo
run("%load_ext jupyter_gpumem")
failed, said = run(SETUP)
assert failed is None, said
# a simulated stream may not exist: then there is nothing to compare
try:
    STATE["stream"]()
except Exception:
    del STATE["stream"]
rows = []
for magic, flags_of in VERBS.items():
    for flag, cells in flags_of.items():
        run(BEFORE)
        *first, cell = cells.split("---\n")
        for one in first:
            run(one)
        before = state()
        error, said = run(cell)
        after = state()
        changed = {part: difference(before[part], after[part]) for part in before if before[part] != after[part]}
        rows.append([magic, flag, error, said[-1500:], changed])
print(json.dumps(rows))
"""
CELLS = [(magic, flag) for magic, entries in VERBS.items() for flag in entries]
DEVICES = ["cpu", "cuda", "simgpu"]


@pytest.fixture(scope="module")
def known():
    """What the processes have found: one for each device and magic, which runs once, also if it fails."""
    return {}


@pytest.fixture
def ran(known, run_on):
    def rows(device, magic):
        if (device, magic) not in known:
            known[device, magic] = {}
            found = run_on(device, f"VERBS = {({magic: VERBS[magic]})!r}\n{RUNNER}").json
            known[device, magic] = {flag: rest for _, flag, *rest in found}
        return known[device, magic]

    return rows


@pytest.mark.xdist_group("nothing else")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("magic", "flag"), CELLS, ids=[f"{magic} {flag}".strip() for magic, flag in CELLS])
def test_nothing_else_changes(ran, device, magic, flag):
    error, said, changed = ran(device, magic)[flag]
    assert changed == {}, said
    assert "untouched, but" not in said, said
    if "fails()" in VERBS[magic][flag]:
        assert error == "ValueError"
    elif flag == "out of memory":
        assert error == "MemoryError"
    elif (magic, flag) in REFUSED or (device != "cuda" and (magic, flag) in OF_CUDA):
        assert error in (None, "UsageError"), said
    elif flag == "--plot" and "plotly" in said:
        assert error == "UsageError"
    else:
        assert error is None, said


@pytest.mark.parametrize("magic", [*map("%{}".format, grammar.LINES), *map("%%{}".format, grammar.CELLS)])
def test_each_flag_has_an_entry(magic):
    table = grammar.CELLS if magic.startswith("%%") else grammar.LINES
    parser = table[magic.strip("%")]()
    wanted = {action.option_strings[0] if action.option_strings else action.dest for action in parser._actions}
    assert wanted <= set(VERBS[magic]), f"{magic} has flags that nobody has tried: {wanted - set(VERBS[magic])}"


def test_a_change_is_seen(run_on):
    """The look itself can fail: a cell that seeds and sets is told."""
    verbs = {"(no verb)": {"": "torch.manual_seed(9)\nimport os\nos.environ['SET'] = '1'\ntorch.set_grad_enabled(False)"}}
    (row,) = run_on("cpu", f"VERBS = {verbs!r}\n{RUNNER}").json
    assert set(row[4]) >= {"random numbers", "environment", "modes"}
