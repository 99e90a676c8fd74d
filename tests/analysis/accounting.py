"""What the tests of accounts run in processes of their own: a check that sums close, and training states."""
from __future__ import annotations

COMMON = """
import gc, json, os, tempfile, random
os.environ["IPYTHONDIR"] = tempfile.mkdtemp()
import torch
from jupyter_gpumem.analysis import account
ON = DEVICE if DEVICE == "cpu" else DEVICE + ":0"
def check(least=0.995):
    (found,) = account.take(None, ON)
    assert (found.device, found.framework) == (ON, "torch")
    sums = [found.allocated, found.reserved, found.used]
    for total in sums:
        if total.total is not None and all(e.nbytes is not None for e in total.entries):
            assert sum(e.nbytes for e in total.entries) == total.total, total
        for e in total.entries:
            assert e.nbytes is None or e.nbytes >= 0 or e.kind == "outside", e
    assert found.allocated.of("unexplained") >= 0
    assert account.explained(found) >= least, (account.explained(found), found.allocated)
    if DEVICE != "cpu":
        module = getattr(torch, DEVICE)
        assert found.allocated.total == module.memory_allocated(0)
        assert found.reserved.total == module.memory_reserved(0)
        assert None not in [e.nbytes for e in found.allocated.entries]
    if DEVICE == "cuda":
        assert None not in [e.nbytes for e in found.reserved.entries]
        assert sum(s.nbytes for s in found.segments) == found.reserved.total
        for s in found.segments:
            assert sum(b.nbytes for b in s.blocks) == s.nbytes
    return found
"""

STATES = """
from torch import nn
def mlp():
    net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 64)).to(ON)
    opt = torch.optim.Adam(net.parameters())
    for _ in range(2):
        loss = net(torch.randn(64, 256, device=ON)).pow(2).mean()
        opt.zero_grad(); loss.backward(); opt.step()
    out = net(torch.randn(64, 256, device=ON)).pow(2).mean()
    return net, opt, loss, out
def conv():
    net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10)) if DEVICE == "cuda" else \\
        nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 30 * 30, 10))
    net = net.to(ON)
    net(torch.randn(2, 3, 32, 32, device=ON))
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    loss = net(torch.randn(8, 3, 32, 32, device=ON)).sum(); loss.backward(); opt.step()
    return net, opt, net(torch.randn(8, 3, 32, 32, device=ON)).sum()
def transformer():
    net = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).to(ON)
    out = net(torch.randn(8, 32, 64, device=ON))
    return net, out.sum()
def checkpointed():
    from torch.utils.checkpoint import checkpoint
    parts = [nn.Linear(256, 256).to(ON) for _ in range(4)]
    x = torch.randn(128, 256, device=ON, requires_grad=True)
    for part in parts: x = checkpoint(part, x, use_reentrant=False)
    return parts, x.sum()
def reentrant():
    from torch.utils.checkpoint import checkpoint
    parts = [nn.Linear(256, 256).to(ON) for _ in range(4)]
    x = torch.randn(128, 256, device=ON, requires_grad=True)
    for part in parts: x = checkpoint(part, x, use_reentrant=True)
    return parts, x.sum()
def mixed():
    net = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 64)).to(ON)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        out = net(torch.randn(64, 256, device=ON))
    return net, out.float().sum()
def accumulated():
    net = nn.Linear(512, 512).to(ON)
    total = 0
    for _ in range(5): total = total + net(torch.randn(64, 512, device=ON)).pow(2).sum()
    for _ in range(2): net(torch.randn(64, 512, device=ON)).sum().backward()
    return net, total
def failed():
    net = nn.Linear(512, 512).to(ON)
    def step():
        acts = [net(torch.randn(64, 512, device=ON)) for _ in range(3)]
        acts[0] @ acts[1]
    try:
        step()
    except RuntimeError as error:
        return net, error
def second_order():
    w = torch.randn(300, 300, device=ON, requires_grad=True)
    first, = torch.autograd.grad((w @ w).pow(3).sum(), w, create_graph=True)
    return w, first.pow(2).sum()
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x * 2)
        ctx.extra = x + 1
        return x * x
    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]
def own_function():
    x = torch.randn(300, 300, device=ON, requires_grad=True)
    return x, Square.apply(x).sum()
def hooked():
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        x = torch.randn(300, 300, device=ON, requires_grad=True)
        return x, (x.exp().sin()).sum()
shares = {}
for make in [mlp, conv, transformer, checkpointed, reentrant, mixed, accumulated, failed, second_order, own_function, hooked]:
    state = make()
    found = check()
    shares[make.__name__] = [account.explained(found), found.allocated.of("graphs"), found.allocated.of("names"), found.allocated.total]
    del state
    gc.collect()
print(json.dumps(shares))
"""
