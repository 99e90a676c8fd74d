"""Caches keep what they were asked."""
from __future__ import annotations

from case import Case

CASES = (
    Case(
        name="cached_method",
        source="facebookresearch/ParlAI#2487",
        story="the old model is gone from the code, yet loading the last checkpoint does not fit: a cache decorator on a method keeps self: the class attribute's cache holds the old object, its agent, its model",
        cells=(
            """\
import functools
class Arena:
    def __init__(self, name):
        self.agent = {"model": block(name)}
    @functools.lru_cache(maxsize=4)
    def size(self):
        return 3
arena = Arena("old")
arena.size()
""",
            """\
arena = Arena("new")
""",
        ),
        kept=frozenset({"old", "new"}),
        holders={"old": ("Arena", "size",), "new": ("arena", "agent",)},
    ),
    Case(
        name="memoized_property",
        source="cornellius-gp/gpytorch#2631",
        story="predictions of a model are asked for once; from then on the model takes twice the memory: the property is cached in the instance's own dictionary",
        cells=(
            """\
import functools
class Process:
    def __init__(self):
        self.train = block("train")
    @functools.cached_property
    def mean_cache(self):
        return tag_tensor("mean", self.train * 2)
gp = Process()
print(float(gp.mean_cache.sum()))
""",
        ),
        kept=frozenset({"train", "mean"}),
        holders={"train": ("gp", "train",), "mean": ("gp", "mean_cache",)},
    ),
    Case(
        name="autocast_left_open",
        source="pytorch/pytorch#48696",
        story="mixed precision without gradients: memory grows by low-precision copies of the weights and stays: autocast was entered by hand and never left; its cache has the copies, which no Python object refers to",
        cells=(
            """\
import torch
layer = torch.nn.Linear(512, 512, bias=False, device=DEVICE)
tag_tensor("weight", layer.weight)
mixed = torch.autocast(DEVICE.type, dtype=torch.bfloat16)
mixed.__enter__()
def forward():
    inputs = torch.ones(1, 512, device=DEVICE, requires_grad=True)
    out = layer(inputs)
    node = out.grad_fn
    saved = getattr(node, "_saved_mat2", None)
    tag_tensor("cast", saved if saved is not None else node._saved_weight)
    return float(out.sum())
value = forward()
""",
        ),
        freed=frozenset({"cast"}),
        kept=frozenset({"weight"}),
        holders={"weight": ("layer", "weight",), "cast": ()},
    ),
)
