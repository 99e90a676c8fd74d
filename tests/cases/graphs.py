"""Autograd graphs keep what they saved."""
from __future__ import annotations

from case import Case

CASES = (
    Case(
        name="running_loss",
        source="BatsResearch/labelmodels#4",
        story="device memory grows by the same amount with every batch of an epoch: the running sum of losses was never detached: its graph has every batch's activations",
        cells=(
            """\
weight = block("weight").requires_grad_()
running = 0.0
def batch_loss(name):
    return (block(name) * weight).mean()
for step in range(2):
    running = running + batch_loss(f"acts{step}")
""",
        ),
        kept=frozenset({"acts0", "acts1", "weight"}),
        holders={"acts0": ("running",), "acts1": ("running",), "weight": ("weight",)},
    ),
    Case(
        name="list_of_losses",
        source="TRI-ML/packnet-sfm#51",
        story="one loss per step is put aside for a plot; memory grows although each loss is one number: the list's items are graph outputs and keep the saved inputs of the layers",
        cells=(
            """\
import torch
layer = torch.nn.Linear(64, 8, device=DEVICE)
history = []
def step(index):
    inputs = block(f"in{index}").view(-1, 64)
    history.append(layer(inputs).mean())
for index in range(2):
    step(index)
""",
            """\
def step(index):
    scratch = block("scratch")
    return 1 / index
step(0)
""",
        ),
        raises={1: "ZeroDivisionError"},
        freed=frozenset({"scratch"}),
        kept=frozenset({"in0", "in1"}),
        holders={"in0": ("history",), "in1": ("history",), "scratch": ("step", "scratch",)},
    ),
    Case(
        name="second_order_gradients",
        source="pytorch/pytorch#51978",
        story="gradients asked for with create_graph are small, but the inputs of the network stay as long as they do: the gradients are outputs of a graph that saved the inputs",
        cells=(
            """\
import torch
scale = torch.ones((), device=DEVICE, requires_grad=True)
def penalty():
    inputs = block("inputs")
    out = ((inputs * scale) ** 2).mean()
    return torch.autograd.grad(out, scale, create_graph=True)
grads = penalty()
plain = block("plain")
""",
        ),
        kept=frozenset({"inputs", "plain"}),
        holders={"inputs": ("grads",), "plain": ("plain",)},
    ),
    Case(
        name="write_into_saved_view",
        source="pytorch/pytorch#2068",
        story="rows of a matrix are overwritten by one of its own rows in a loop; memory is gone quickly: the graph saved a view of the matrix that was then changed in place: matrix and history hold each other in C++",
        cells=(
            """\
import torch
def overwrite():
    seed = torch.ones((), device=DEVICE, requires_grad=True)
    matrix = tag_tensor("matrix", torch.zeros(512, 512, device=DEVICE) * seed)
    row = matrix[4]
    changed = row * row
    matrix[0] = changed
overwrite()
""",
        ),
        optional=frozenset({"matrix"}),
        holders={"matrix": ()},
    ),
    Case(
        name="pack_hook_keeps_output",
        source="pytorch/pytorch#189025",
        story="saved tensors are recorded by a hook; a forward pass without backward loses its memory, collection does not help: the hook returned the live output, so the graph saved a tensor that has this graph: a cycle through C++",
        cells=(
            """\
import torch
class Kept:
    def __init__(self, tensor):
        self.tensor = tensor
def forward():
    x = torch.zeros(2**18, device=DEVICE, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(Kept, lambda kept: kept.tensor):
        tag_tensor("out", x.exp())
forward()
""",
        ),
        optional=frozenset({"out"}),
        holders={"out": ()},
    ),
    Case(
        name="cache_hook_on_graph",
        source="cornellius-gp/gpytorch#2734",
        story="each fantasy model leaves its caches on the device, until nothing is left: a hook on the cached tensor's graph node calls back the strategy that holds the cache: a cycle through C++",
        cells=(
            """\
import functools, torch
class Strategy:
    def __init__(self):
        x = torch.zeros(2**18, device=DEVICE, requires_grad=True)
        self.memo = {"mean": tag_tensor("cache", x * 2)}
        self.memo["mean"].grad_fn.register_hook(functools.partial(self.forget))
    def forget(self, *unused):
        self.memo.clear()
strategy = Strategy()
""",
            """\
del strategy
""",
        ),
        optional=frozenset({"cache"}),
        holders={"cache": ("Strategy",)},
    ),
)
