"""Cycles wait for a collection."""
from __future__ import annotations

from case import Case

CASES = (
    Case(
        name="removed_hooks_in_a_ring",
        source="chr5tphr/zennit#11",
        story="memory rises with each run of an attribution method although its context manager removes all hooks: hook objects, their stored input and the wrapper functions refer to each other: a cycle",
        cells=(
            """\
import torch
class Hook:
    def __init__(self):
        self.stored = {}
        self.wrapper = lambda module, args, output: self.stored.update(x=args[0])
def explain(net):
    hook = Hook()
    handle = net.register_forward_hook(hook.wrapper)
    net(block("stored"))
    handle.remove()
net = torch.nn.Identity()
explain(net)
""",
        ),
        freed=frozenset({"stored"}),
        holders={"stored": ("Hook",)},
    ),
    Case(
        name="lambda_on_module",
        source="pytorch/pytorch#28647",
        story="a network with a lambda attribute is deleted and made again; both are on the device: the lambda closes over self: a cycle, freed only when the collector runs",
        cells=(
            """\
import torch
class Speller(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        self.big = torch.nn.Linear(512, 512, bias=False, device=DEVICE)
        tag_tensor(name, self.big.weight)
        self.letters = "abc"
        self.spell = lambda index: self.letters[index]
net = Speller("old")
""",
            """\
del net
net = Speller("new")
""",
        ),
        freed=frozenset({"old"}),
        kept=frozenset({"new"}),
        holders={"old": ("Speller",), "new": ("net", "big.weight",)},
    ),
    Case(
        name="own_method_as_attribute",
        source="pytorch/pytorch#128211",
        story="three modules are made and deleted in a loop, the allocated bytes only go up: the module stores one of its bound methods: a cycle for each module",
        cells=(
            """\
import torch
class Chooser(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        self.register_buffer("table", block(name))
        self.activation = self.soft
    def soft(self, x):
        return x
for index in range(3):
    module = Chooser(f"m{index}")
    del module
""",
        ),
        freed=frozenset({"m0", "m1", "m2"}),
        holders={"m0": ("Chooser",), "m1": ("Chooser",), "m2": ("Chooser",)},
    ),
    Case(
        name="wrapped_forward",
        source="huggingface/sentence-transformers#3204",
        story="a loop makes a model and a trainer, trains, deletes both and collects; with one version of a library nothing is freed without collecting: the prepared model's forward is a partial object over the model itself: a cycle",
        cells=(
            """\
import functools, torch
def convert(forward, module, *args):
    return forward(*args)
def prepare(module):
    module._original_forward = module.forward
    module.forward = functools.partial(convert, module._original_forward, module)
    return module
model = prepare(torch.nn.Linear(512, 512, bias=False, device=DEVICE))
tag_tensor("w", model.weight);
""",
            """\
del model
""",
        ),
        freed=frozenset({"w"}),
        holders={"w": ("Linear", "forward",)},
    ),
    Case(
        name="learner_and_callbacks",
        source="fastai/fastai#1375",
        story="the learner goes out of scope at the end of an experiment, its model stays until some time later: each callback refers back to the learner: a cycle",
        cells=(
            """\
class Recorder:
    def __init__(self, learn):
        self.learn = learn
class Learner:
    def __init__(self):
        self.model = block("model")
        self.callbacks = [Recorder(self)]
def experiment():
    learn = Learner()
    return block("best")
best = experiment()
""",
        ),
        freed=frozenset({"model"}),
        kept=frozenset({"best"}),
        holders={"model": ("Learner", "Recorder",), "best": ("best",)},
    ),
    Case(
        name="trainer_model_card",
        source="huggingface/sentence-transformers#3144",
        story="a script that trains with several seeds needs twice the memory from the second seed on: trainer -> model -> model card -> trainer: a cycle, also reached by the error that ended the second run",
        cells=(
            """\
class Card:
    trainer = None
class Model:
    def __init__(self, name):
        self.weight, self.card = block(name), Card()
class Trainer:
    def __init__(self, model):
        self.model = model
        model.card.trainer = self
    def train(self, fail):
        if fail:
            raise RuntimeError("loss is not finite")
def run(seed, fail=False):
    Trainer(Model(f"seed{seed}")).train(fail)
run(0)
""",
            """\
run(1, fail=True)
""",
        ),
        raises={1: "RuntimeError"},
        freed=frozenset({"seed0", "seed1"}),
        holders={"seed0": ("Trainer", "Model", "Card",), "seed1": ("train", "self", "model",)},
    ),
    Case(
        name="cycle_with_del",
        source="ipython/ipython#8207",
        story="a closed object of a user interface is never collected; it has a finaliser and closes over itself: a cycle with __del__: collectable, and the finaliser must run exactly once",
        cells=(
            """\
log = [block("closed")]
class View:
    def __init__(self):
        self.canvas = block("canvas")
        self.validate = lambda value: self.check(value)
    def check(self, value):
        return value
    def __del__(self):
        log.append("closed")
        assert log.count("closed") == 1
view = View()
""",
            """\
del view
""",
        ),
        freed=frozenset({"canvas"}),
        kept=frozenset({"closed"}),
        holders={"canvas": ("View",), "closed": ("log",)},
    ),
    Case(
        name="frozen_collector",
        source="pytorch/pytorch#95462",
        story="objects were frozen before the loop to make collections cheap; what was made before is never freed, collecting or not: gc.freeze put a cycle out of the collector's sight before its last name went",
        cells=(
            """\
import gc
class Session:
    def __init__(self, value):
        self.value, self.me = value, self
session, live = Session(block("old")), Session(block("live"))
gc.freeze()
""",
            """\
del session
""",
        ),
        freed=frozenset({"old"}),
        kept=frozenset({"live"}),
        holders={"old": ("gc.freeze() hides",), "live": ("live",)},
    ),
    Case(
        name="garbage_unknown_to_allocator",
        source="pytorch/pytorch#50185",
        story="a loop of objects that refer to themselves runs out of memory although nothing is alive between rounds: dead cycles wait for a collection that the allocator does not ask for; one more is held by the error of the loop",
        cells=(
            """\
class Ring:
    def __init__(self, value):
        self.next, self.value = self, value
def rounds():
    Ring(block("dead"))
    current = Ring(block("current"))
    raise MemoryError
""",
            """\
rounds()
""",
        ),
        raises={1: "MemoryError"},
        freed=frozenset({"dead", "current"}),
        holders={"dead": ("Ring",), "current": ("rounds", "current",)},
    ),
)
