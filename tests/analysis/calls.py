"""Calls of many kinds, to be forecast and then made: each gives ``(function, args)`` for a device and a batch."""
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

KINDS = {}


def kind(make):
    KINDS[make.__name__] = make
    return make


def train(model, opt, x, y):
    opt.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    return loss.item()


def labels(batch, device, classes=10):
    return torch.zeros(batch, dtype=torch.long, device=device)


@kind
def mlp_sgd_momentum(device, batch):
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).to(device)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return train, (model, opt, torch.randn(batch, 256, device=device), labels(batch, device))


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a, self.n = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c)
        self.b, self.m = nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c)

    def forward(self, x):
        return F.relu(x + self.m(self.b(F.relu(self.n(self.a(x))))))


@kind
def resnet_adam(device, batch):
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(True), Block(16), Block(16), *head)
    model = model.to(device)
    return train, (model, torch.optim.Adam(model.parameters()), torch.randn(batch, 3, 32, 32, device=device), labels(batch, device))


class Language(nn.Module):
    def __init__(self, body, words=500, d=64):
        super().__init__()
        self.embedding, self.body, self.out = nn.Embedding(words, d), body, nn.Linear(d, words)

    def forward(self, x):
        return self.out(self.body(self.embedding(x))).flatten(0, 1)


def language(device, body, batch, opt, length=32):
    model = Language(body).to(device)
    x = torch.zeros(batch, length, dtype=torch.long, device=device)
    return train, (model, opt(model.parameters()), x, x.flatten())


@kind
def transformer_adamw(device, batch):
    layer = nn.TransformerEncoderLayer(64, 4, 256, batch_first=True)
    return language(device, nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), batch, torch.optim.AdamW)


class Cell(nn.Module):
    """A recurrent layer by hand: the fused cells have no kernel on the simulated device."""

    def __init__(self, d, gates):
        super().__init__()
        self.x, self.h, self.gates = nn.Linear(d, gates * d), nn.Linear(d, gates * d), gates

    def forward(self, x):
        h = c = torch.zeros_like(x[:, 0])
        outs = []
        for t in range(x.shape[1]):
            if self.gates == 4:
                i, f, g, o = (self.x(x[:, t]) + self.h(h)).chunk(4, 1)
                c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
                h = torch.sigmoid(o) * torch.tanh(c)
            else:
                (r, z, n), (hr, hz, hn) = self.x(x[:, t]).chunk(3, 1), self.h(h).chunk(3, 1)
                z = torch.sigmoid(z + hz)
                h = (1 - z) * torch.tanh(n + torch.sigmoid(r + hr) * hn) + z * h
            outs.append(h)
        return torch.stack(outs, 1)


@kind
def lstm_rmsprop(device, batch):
    return language(device, Cell(64, 4), batch, torch.optim.RMSprop, length=12)


@kind
def gru_clipped(device, batch):
    def step(model, opt, x, y):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        return float(loss)

    return step, language(device, Cell(64, 3), batch, torch.optim.Adam, length=12)[1]


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(784, 256), nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 784))
        self.mean, self.log = nn.Linear(256, 16), nn.Linear(256, 16)

    def forward(self, x):
        h = F.relu(self.encoder(x))
        mean, log = self.mean(h), self.log(h)
        return self.decoder(mean + torch.randn_like(mean) * (log / 2).exp()), mean, log


@kind
def vae(device, batch):
    model = VAE().to(device)
    opt = torch.optim.Adam(model.parameters())
    x = torch.rand(batch, 784, device=device)
    history = []

    def step():
        opt.zero_grad(set_to_none=False)
        out, mean, log = model(x)
        loss = F.binary_cross_entropy_with_logits(out, x, reduction="sum") - 0.5 * (1 + log - mean**2 - log.exp()).sum()
        loss.backward()
        opt.step()
        history.append(loss.item())

    return step, ()


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.up, self.c, self.d = nn.Upsample(scale_factor=2), nn.Conv2d(24, 8, 3, padding=1), nn.Conv2d(8, 10, 1)

    def forward(self, x):
        a = F.relu(self.a(x))
        b = F.relu(self.b(F.max_pool2d(a, 2)))
        return self.d(F.relu(self.c(torch.cat([a, self.up(b)], 1))))


@kind
def unet(device, batch):
    model = UNet().to(device)
    y = torch.zeros(batch, 32, 32, dtype=torch.long, device=device)
    return train, (model, torch.optim.AdamW(model.parameters()), torch.randn(batch, 1, 32, 32, device=device), y)


class Attention(nn.Module):
    def __init__(self, d=64, heads=4):
        super().__init__()
        self.qkv, self.out, self.heads = nn.Linear(d, 3 * d), nn.Linear(d, d), heads

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        return x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))


@kind
def attention(device, batch):
    return language(device, nn.Sequential(Attention(), Attention()), batch, torch.optim.Adagrad, length=64)


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 128)) for _ in range(4))
        self.out = nn.Linear(128, 10)

    def forward(self, x):
        for layer in self.layers:
            x = x + checkpoint(layer, x, use_reentrant=False)
        return self.out(x)


@kind
def checkpointing(device, batch):
    model = Checkpointed().to(device)
    opt = torch.optim.Adam(model.parameters())
    return train, (model, opt, torch.randn(batch, 128, device=device), labels(batch, device))


@kind
def autocast(device, batch):
    _, (model, opt, x, y) = resnet_adam(device, batch)

    def step():
        opt.zero_grad()
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        return loss.detach()

    return step, ()


@kind
def accumulation(device, batch):
    _, (model, opt, x, y) = mlp_sgd_momentum(device, batch)

    def step(model, opt, x, y, parts=2):
        opt.zero_grad()
        total = 0.0
        for _ in range(parts):
            loss = F.cross_entropy(model(x), y) / parts
            loss.backward()
            total += loss.item()
        opt.step()
        return total

    return step, (model, opt, x, y)


@kind
def frozen_backbone(device, batch):
    _, (model, _, x, y) = resnet_adam(device, batch)
    model.requires_grad_(False)[-1].requires_grad_(True)
    opt = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    return train, (model, opt, x, y)


@kind
def evaluation(device, batch):
    _, (model, _, x, y) = resnet_adam(device, batch)
    model.eval()

    @torch.no_grad()
    def accuracy(model, x, y):
        return (model(x).argmax(1) == y).float().mean().item()

    return accuracy, (model, x, y)


@kind
def scaled_and_scheduled(device, batch):
    _, (model, _, x, y) = mlp_sgd_momentum(device, batch)
    opt = torch.optim.AdamW(model.parameters(), foreach=False)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 10)

    def step(model, opt, x, y):
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        plan.step()
        return loss.item()

    return step, (model, opt, x, y)


def measured(kinds, device="cuda", batches=(4, 16, 64)):
    """``(kind, batch, step, forecast peak, true peak, forecast reserved, true reserved, untouched)`` of each call."""
    import gc

    from jupyter_gpumem.analysis import forecast

    cuda, found = torch.cuda, []
    for name in kinds:
        for batch in batches:
            function, args = KINDS[name](device, batch)
            for step in (1, 2) if batch == 16 else (1,):  # in the second there are gradients and states
                gc.collect()
                before = cuda.memory_stats(), torch.get_rng_state().tolist()
                peak = forecast.take(None, name, function, args, batches=False).devices[0]
                untouched = (cuda.memory_stats(), torch.get_rng_state().tolist()) == before
                cuda.reset_peak_memory_stats()
                function(*args)
                true = cuda.max_memory_allocated(), cuda.max_memory_reserved()
                found.append((name, batch, step, peak.peak, true[0], peak.reserved, true[1], untouched))
    return found
