"""Hooks of modules keep what they saw."""
from __future__ import annotations

from case import Case

CASES = (
    Case(
        name="module_keeps_its_input",
        source="jmschrei/tangermeme#84",
        story="attributions were computed and the hooks removed; the model is larger than before: the hooks put input and output on the modules as attributes, which removing hooks does not undo",
        cells=(
            """\
import torch
net = torch.nn.Sequential(torch.nn.ReLU())
def attribute():
    def remember(module, args, output):
        module.input = args[0].detach()
        module.output = tag_tensor("outp", output.detach())
    handle = net[0].register_forward_hook(remember)
    net(block("inp"))
    handle.remove()
attribute()
""",
        ),
        kept=frozenset({"inp", "outp"}),
        holders={"inp": ("net", "0.input",), "outp": ("net", "0.output",)},
    ),
    Case(
        name="activations_without_grad",
        source="meta-pytorch/opacus#176",
        story="evaluating under no_grad makes memory grow if the model is still in training mode: per-sample hooks append activations to a list on each layer and only a backward pass would empty it",
        cells=(
            """\
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Identity()
        self.fc.activations = []
        self.fc.register_forward_hook(lambda module, args, output: module.activations.append(args[0]) if module.training else None)
    def forward(self, x):
        return self.fc(x).mean()
model = Model()
with torch.no_grad():
    for index in range(2):
        model(block(f"eval{index}"))
""",
            """\
def report():
    tmp = block("tmp")
    return {}["accuracy"]
report()
""",
        ),
        raises={1: "KeyError"},
        freed=frozenset({"tmp"}),
        kept=frozenset({"eval0", "eval1"}),
        holders={"eval0": ("model", "fc.activations",), "eval1": ("model", "fc.activations",), "tmp": ("report", "tmp",)},
    ),
)
