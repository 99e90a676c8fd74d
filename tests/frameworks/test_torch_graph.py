"""What autograd graphs keep: the allocator is the truth."""
from __future__ import annotations

import torch

from jupyter_gpumem.frameworks import torch_graph


def test_nodes_are_known_by_type_alone():
    result = torch.ones(2, requires_grad=True).exp()
    assert torch_graph.is_node_type(type(result.grad_fn))
    assert not torch_graph.is_node_type(type(result))
    assert not torch_graph.is_node_type(int)


def test_walking_runs_no_hook_and_survives_freed_buffers():
    ran = []
    leaf = torch.ones(2, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: ran.append(t) or t):
        result = leaf.exp()
    torch_graph.step(result.grad_fn)
    assert ran == []
    result.sum().backward()
    assert torch_graph.step(result.grad_fn)


def test_attributes_of_a_context_are_seen():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.kept = [torch.ones(7)]
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    node = Double.apply(torch.ones(2, requires_grad=True)).grad_fn
    assert any(torch.is_tensor(found) and found.shape == (7,) for found in torch_graph.step(node))


ACCOUNT = """
import gc, json, torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from jupyter_gpumem.analysis.inventory import take_inventory
torch.manual_seed(0)

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a, self.b, self.n = nn.Linear(width, width * 2), nn.Linear(width * 2, width), nn.LayerNorm(width)
    def forward(self, x):
        return x + self.b(F.gelu(self.a(self.n(x))))

def mlp(): return nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Dropout(0.1), nn.Linear(128, 64))
def conv(): return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
def transformer(): return nn.TransformerEncoderLayer(32, 2, 64, batch_first=True)
INPUTS = {"mlp": (16, 64), "conv": (4, 3, 16, 16), "transformer": (4, 8, 32), "checkpointed": (16, 32)}
rows = []
for name, make in (("mlp", mlp), ("conv", conv), ("transformer", transformer), ("checkpointed", lambda: Block(32))):
    for optimizer in (torch.optim.SGD, torch.optim.Adam):
        for mixed in (False, True):
            net = make().to(DEVICE)
            opt = optimizer(net.parameters(), lr=1e-3, **({"momentum": 0.9} if optimizer is torch.optim.SGD else {}))
            x = torch.randn(INPUTS[name], device=DEVICE)
            def loss():
                with torch.autocast("cuda", dtype=torch.bfloat16, enabled=mixed):
                    out = checkpoint(net, x, use_reentrant=False) if name == "checkpointed" else net(x)
                    return out.float().square().mean()
            loss().backward(); opt.step()
            live = loss()
            with take_inventory() as seen:
                explained = sum(-(-max(1, s.part.nbytes) // 512) * 512 for s in seen.storages.values()
                                if s.part.device.startswith("cuda") and s.part.nbytes)
            rows.append((name, optimizer.__name__, mixed, explained, torch.cuda.memory_allocated()))
            del net, opt, x, live
            gc.collect()
print(json.dumps(rows))
"""


def test_training_states_are_explained(run_on):
    rows = run_on("cuda", ACCOUNT).json
    assert len(rows) == 16
    for name, optimizer, mixed, explained, allocated in rows:
        assert explained <= allocated
        assert explained / allocated >= 0.995, (name, optimizer, mixed, explained, allocated)
