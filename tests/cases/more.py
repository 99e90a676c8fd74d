"""Further kinds that users meet, each with the same truth as its relatives."""
from __future__ import annotations

from case import Case

CASES = (
    Case(
        name="from_none_keeps_its_context",
        source="a common pattern",
        story="an error is re-raised from None to hide its origin: the origin is still its context, with its frames",
        cells=(
            """\
def inner():
    batch = block("batch")
    raise KeyError("first")
def outer():
    try:
        inner()
    except KeyError:
        raise ValueError("second") from None
""",
            "outer()\n",
        ),
        raises={1: "ValueError"},
        freed=frozenset({"batch"}),
        holders={"batch": ("last error", "context", "inner", "batch")},
    ),
    Case(
        name="error_carries_a_tensor",
        source="a common pattern",
        story="an error is raised with the tensor that was wrong as its argument",
        cells=("""\
def check():
    wrong = block("wrong")
    raise ValueError("not finite", wrong)
""", "check()\n"),
        raises={1: "ValueError"},
        freed=frozenset({"wrong"}),
        holders={"wrong": ("last error",)},
    ),
    Case(
        name="syntax_error_after_the_error",
        source="a common pattern",
        story="a typing slip after a failed cell: the shell has another last error, and forgets none of its own",
        cells=("""\
def step():
    acts = block("acts")
    raise RuntimeError("boom")
""", "step()\n", "x = = 1\n"),
        raises={1: "RuntimeError", 2: "SyntaxError"},
        freed=frozenset({"acts"}),
        holders={"acts": ()},
    ),
    Case(
        name="timed_cell_fails",
        source="a common pattern",
        story="a timed cell fails: the timing magic's own frame is part of the traceback",
        cells=("""\
def step():
    acts = block("acts")
    raise RuntimeError("boom")
""", "%%time\nlocal = 1\nstep()\n"),
        raises={1: "RuntimeError"},
        freed=frozenset({"acts"}),
        holders={"acts": ("last error", "step", "acts")},
        needs="ipython9",
    ),
    Case(
        name="thread_died_of_an_error",
        source="a common pattern",
        story="a thread ended with an error that was printed: nothing keeps it, and the name keeps the thread's own tensor",
        cells=("""\
import threading
class Worker(threading.Thread):
    def run(self):
        self.kept = block("kept")
        gone = block("gone")
        raise RuntimeError("in a thread")
worker = Worker()
worker.start(); worker.join()
""",),
        kept=frozenset({"kept"}),
        holders={"kept": ("worker.kept",)},
    ),
    Case(
        name="errors_collected_by_exc_info",
        source="a common pattern",
        story="the user collects sys.exc_info() tuples in a list: the frames are theirs",
        cells=("""\
import sys
log = []
def step():
    acts = block("acts")
    raise RuntimeError("boom")
for _ in range(2):
    try:
        step()
    except RuntimeError:
        log.append(sys.exc_info())
""",),
        kept=frozenset({"acts"}),
        holders={"acts": ("log[", "step", "acts")},
    ),
    Case(
        name="outputs_of_every_shape",
        source="a common pattern",
        story="a list, a dictionary, a model and an optimizer were each the last line of a cell",
        cells=(
            "import torch\n[block('in_list'), 1]\n",
            "{'a': {'b': block('in_dict')}}\n",
            "net = torch.nn.Linear(512, 512, bias=False, device=DEVICE); tag_tensor('model', net.weight); net\n",
            "torch.optim.SGD(net.parameters(), lr=1.0)\n",
            "del net\n",
        ),
        freed=frozenset({"in_list", "in_dict", "model"}),
        holders={"in_list": ("Out[1]",), "in_dict": ("Out[2]",), "model": ("Out[3]",)},
    ),
    Case(
        name="output_fetched_into_a_container",
        source="a common pattern",
        story="an output was put into a list of the user's: a name holds it",
        cells=("block('best')\n", "block('rest')\n", "results = {'best': Out[1]}\n"),
        freed=frozenset({"rest"}),
        kept=frozenset({"best"}),
        holders={"best": ("results['best']",), "rest": ("Out[2]",)},
    ),
    Case(
        name="names_that_look_like_outputs",
        source="a common pattern",
        story="the user's own _x, _1 and __cache are names",
        cells=("_x = block('x')\n_1 = block('one')\n__cache = block('cache')\n", "block('shown')\n"),
        freed=frozenset({"shown"}),
        kept=frozenset({"x", "one", "cache"}),
        holders={"x": ("_x",), "one": ("_1",), "cache": ("__cache",), "shown": ("Out[2]",)},
    ),
    Case(
        name="script_that_left_its_globals",
        source="a common pattern",
        story="a script was run, its names deleted, and none of its functions is used: the shell keeps its module",
        cells=("import builtins\nbuiltins.make_block = block\n", "%%writefile left.py\nbig = make_block('big')\nsmall = 1\n",
               "%run left.py\n", "del big\n"),
        freed=frozenset({"big"}),
        holders={"big": ("%run", "big")},
    ),
    Case(
        name="hidden_state_not_detached",
        source="a common pattern",
        story="a recurrent state is carried from step to step with its graph",
        cells=("""\
import torch
weight = block("weight").requires_grad_()
state = torch.zeros(2**18, device=DEVICE)
for step in range(2):
    state = state * weight + tag_tensor(f"in{step}", torch.ones(2**18, device=DEVICE)) * weight
""",),
        kept=frozenset({"weight", "in0", "in1"}),
        holders={"weight": ("weight",), "in0": ("state", "graph"), "in1": ("state", "graph")},
    ),
    Case(
        name="function_context_keeps_an_attribute",
        source="a common pattern",
        story="a custom Function puts a tensor on ctx instead of saving it",
        cells=("""\
import torch
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.scratch = block("scratch")
        return x * 2
    @staticmethod
    def backward(ctx, grad):
        return grad * 2
loss = Scale.apply(torch.ones(1, device=DEVICE, requires_grad=True)).sum()
""",),
        kept=frozenset({"scratch"}),
        holders={"scratch": ("loss", "graph")},
    ),
    Case(
        name="hook_handle_forgotten",
        source="a common pattern",
        story="a forward hook closes over a list and its handle was thrown away",
        cells=("""\
import torch
net = torch.nn.Sequential(torch.nn.Identity())
def watch():
    seen = []
    net[0].register_forward_hook(lambda module, args, output: seen.append(output))
watch()
net(block("activation"));
""",),
        kept=frozenset({"activation"}),
        holders={"activation": ("net", "closure 'seen'")},
    ),
    Case(
        name="parent_pointer_in_a_tree_of_modules",
        source="a common pattern",
        story="submodules know their parent: the deleted model is a cycle",
        cells=("""\
import torch
class Child(torch.nn.Module):
    def __init__(self, parent):
        super().__init__()
        object.__setattr__(self, "parent", parent)
        self.weight = torch.nn.Parameter(block("weight"))
class Parent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.child = Child(self)
Parent();
""",),
        freed=frozenset({"weight"}),
        holders={"weight": ("Parent", "Child")},
    ),
    Case(
        name="collector_switched_off",
        source="a common pattern",
        story="automatic collection was switched off for speed, and dead cycles pile up",
        cells=("""\
import gc
gc.disable()
class Ring:
    def __init__(self, value):
        self.me, self.value = self, value
for index in range(2):
    Ring(block(f"ring{index}"))
""",),
        freed=frozenset({"ring0", "ring1"}),
        holders={"ring0": ("Ring",), "ring1": ("Ring",)},
    ),
    Case(
        name="cached_function",
        source="a common pattern",
        story="a cache decorator on a function keeps the values that it made",
        cells=("""\
import functools
@functools.lru_cache(maxsize=None)
def table(n):
    return block(f"table{n}")
for n in range(2):
    table(n)
""",),
        kept=frozenset({"table0", "table1"}),
        holders={"table0": ("table", "cache"), "table1": ("table", "cache")},
    ),
    Case(
        name="zip_reuses_its_pair",
        source="a common pattern",
        story="a zip iterator keeps the last pair that it made",
        cells=("""\
def batches():
    yield block("first")
    yield None
pairs = zip(range(2), batches())
for index, batch in pairs:
    break
""", "del batch\n"),
        kept=frozenset({"first"}),
        holders={"first": ("pairs",)},
    ),
    Case(
        name="cycle_iterator_remembers",
        source="a common pattern",
        story="itertools.cycle keeps all items of the first round",
        cells=("""\
import itertools
endless = itertools.cycle(block(f"b{i}") for i in range(2))
next(endless); next(endless); next(endless);
""",),
        kept=frozenset({"b0", "b1"}),
        holders={"b0": ("endless",), "b1": ("endless",)},
    ),
    Case(
        name="replay_buffer",
        source="a common pattern",
        story="a bounded queue keeps its last entries on the device",
        cells=("""\
import collections
Step = collections.namedtuple("Step", "state reward")
memory = collections.deque(maxlen=2)
for index in range(3):
    memory.append(Step(block(f"s{index}"), 1.0))
""",),
        kept=frozenset({"s1", "s2"}),
        holders={"s1": ("memory[0].state",), "s2": ("memory[1].state",)},
    ),
    Case(
        name="optimizer_of_a_deleted_model",
        source="a common pattern",
        story="the model is deleted, its optimizer is not: parameters and states stay",
        cells=("""\
import torch
model = torch.nn.Linear(512, 512, bias=False, device=DEVICE)
tag_tensor("weight", model.weight)
optimizer = torch.optim.Adam(model.parameters())
model.weight.grad = torch.ones_like(model.weight)
optimizer.step()
tag_tensor("average", optimizer.state[model.weight]["exp_avg"])
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
del model
""",),
        kept=frozenset({"weight", "average"}),
        holders={"weight": ("optimizer",), "average": ("optimizer.state", "exp_avg")},
    ),
    Case(
        name="split_and_unbound_views",
        source="a common pattern",
        story="one chunk of a split keeps the whole",
        cells=("part = block('whole', 2).chunk(4)[1]\nrow = block('rows', 2).view(4, -1).unbind()[0]\n",),
        kept=frozenset({"whole", "rows"}),
        holders={"whole": ("part",), "rows": ("row",)},
    ),
    Case(
        name="async_generator_not_read_to_its_end",
        source="a common pattern",
        story="a suspended async generator keeps its local",
        cells=("""\
async def load():
    while True:
        samples = block("samples")
        yield 1
stream = load()
await stream.__anext__()
""",),
        kept=frozenset({"samples"}),
        holders={"samples": ("stream", "load", "samples")},
    ),
    Case(
        name="finalizer_with_an_argument",
        source="a common pattern",
        story="weakref.finalize keeps the argument of its callback until the object dies",
        cells=("""\
import weakref
class Session:
    pass
session = Session()
weakref.finalize(session, print, block("kept"), end="").atexit = False
""",),
        kept=frozenset({"kept"}),
        holders={"kept": ("finalize",)},
    ),
    Case(
        name="thread_local_value",
        source="a common pattern",
        story="a value of this thread in a threading.local",
        cells=("import threading\nstate = threading.local()\nstate.cache = block('cache')\n",),
        kept=frozenset({"cache"}),
        holders={"cache": ("state.cache",)},
    ),
    Case(
        name="slotted_and_frozen_objects",
        source="a common pattern",
        story="objects without a dictionary hold tensors in slots",
        cells=("""\
import dataclasses
@dataclasses.dataclass(frozen=True)
class Batch:
    __slots__ = ("images", "labels")
    images: object
    labels: object
batch = Batch(block("images"), [block("labels")])
""",),
        kept=frozenset({"images", "labels"}),
        holders={"images": ("batch.images",), "labels": ("batch.labels",)},
    ),
    Case(
        name="queue_of_a_producer",
        source="a common pattern",
        story="a producer filled a queue that nobody reads",
        cells=("import queue\nwaiting = queue.Queue()\nwaiting.put({'x': block('x')})\n",),
        kept=frozenset({"x"}),
        holders={"x": ("waiting.queue[0]['x']",)},
    ),
    Case(
        name="coroutine_never_awaited",
        source="a common pattern",
        story="a coroutine was made with a tensor and never awaited",
        cells=("async def use(tensor):\n    return tensor.sum()\npending = use(block('arg'))\n",),
        kept=frozenset({"arg"}),
        holders={"arg": ("pending", "use", "tensor")},
    ),
    Case(
        name="patched_module_function",
        source="a common pattern",
        story="a library function was replaced by one that closes over the old results",
        cells=("%%writefile patched.py\ndef run(x):\n    return x\n", """\
import sys; sys.path.insert(0, "")
import patched
def patch():
    results, original = [], patched.run
    def run(x):
        results.append(original(x))
        return results[-1]
    patched.run = run
patch()
patched.run(block("result"));
""",),
        kept=frozenset({"result"}),
        holders={"result": ("patched", "run", "results")},
    ),
)
