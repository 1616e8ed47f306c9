"""Quantisation-aware training with torchao: does it matter what the clamp's gradient is at a bound?

torchao divides by a scale, rounds, and calls torch.clamp with the smallest and the largest integer, so
that all weights of the outermost steps stand exactly at a bound. Here a small transformer is trained in
float32 and then trained on with fake-quantised weights, under `clampgrad.pin`, which torchao's
clamps obey. The data come from a Markov chain of order 2, of which the best possible loss is known.
"""

import functools
import math
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import clampgrad

CONTROL = "control"  # `inclusive`, from weights moved by one unit in the last place
GRADIENTS = ("inclusive", "joint", "half", "straight_through", CONTROL)
SYMBOLS, CONTEXT, WIDTH, HEADS, BLOCKS, GROUP = 16, 24, 32, 2, 1, 32
BATCH, TEST = 16, 512
FLOAT_STEPS, QAT_STEPS = 800, 300
FLOAT_RATE, QAT_RATE = 3e-3, 1e-3
PARTS = 10  # of the training, for the curve and for the counts
WEIGHTS = {
    **dict.fromkeys(("int8", "int4", "int2"), GRADIENTS),
    **dict.fromkeys(("int4, learned scale", "int4, int8 activations"), ("inclusive", "joint")),
}


def runs(seeds):
    for seed in seeds:
        yield dict(weights="float32", gradient="none", seed=seed)
        for weights, gradients in WEIGHTS.items():
            for gradient in gradients:
                yield dict(weights=weights, gradient=gradient, seed=seed)


def run(weights, gradient, seed, steps=QAT_STEPS, rate=QAT_RATE, decay=True):
    net, chain = pretrained(seed)
    net = clone(net)
    if weights != "float32":
        quantise(net, weights)
    start = test(net, chain, seed)
    if gradient == CONTROL:
        with torch.no_grad():
            for p in net.parameters():
                p.copy_(torch.nextafter(p, torch.tensor(torch.inf)))
    how = {"none": None, CONTROL: "inclusive"}.get(gradient, gradient)
    curve, bounds = train(net, chain, steps, rate, 5000 + seed, how, decay)
    return dict(before=start, after=test(net, chain, seed), curve=curve, bounds=bounds, steps=steps)


# ---- The model and its data ----------------------------------------------------------------------


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.symbol = nn.Embedding(SYMBOLS, WIDTH)
        self.place = nn.Parameter(torch.randn(CONTEXT, WIDTH) * 0.1)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, SYMBOLS)

    def forward(self, x):
        x = self.symbol(x) + self.place
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        n, t, _ = x.shape
        qkv = self.qkv(self.norms[0](x)).view(n, t, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(*qkv, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(n, t, WIDTH))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Chain:
    """The next symbol depends on the last two, by logits that are drawn once and add up."""

    def __init__(self, generator):
        older, newer = 1.5 * torch.randn(2, SYMBOLS, SYMBOLS, generator=generator)
        logits = older[:, None] + newer
        self.log_p = logits.log_softmax(-1)
        self.p = self.log_p.exp()

    def sequences(self, n, generator):
        columns = list(torch.randint(SYMBOLS, (2, n), generator=generator))
        for _ in range(CONTEXT - 1):
            p = self.p[columns[-2], columns[-1]]
            columns.append(torch.multinomial(p, 1, generator=generator)[:, 0])
        return torch.stack(columns, 1)


def cross_entropy(net, x):
    """The loss of every symbol that has two before it."""
    logits = net(x[:, :-1])[:, 1:]
    return F.cross_entropy(logits.flatten(0, 1), x[:, 2:].flatten())


@functools.lru_cache(1)
def pretrained(seed):
    generator = torch.Generator().manual_seed(seed)
    chain = Chain(generator)
    torch.manual_seed(seed)
    net = Transformer()
    train(net, chain, FLOAT_STEPS, FLOAT_RATE, 3000 + seed, None)
    return net, chain


def clone(net):
    copy = Transformer()
    copy.load_state_dict(net.state_dict())
    return copy


# ---- Quantisation --------------------------------------------------------------------------------


def quantise(net, weights):
    """torchao's fake quantisation of every linear layer, prepared for training."""
    from torchao.quantization import quantize_
    from torchao.quantization.qat import (
        IntxFakeQuantizeConfig,
        QATConfig,
        initialize_fake_quantizers,
    )

    dtype = getattr(torch, weights.split(",")[0])
    learned = weights.endswith("learned scale")
    options = dict(is_dynamic=False, range_learning=True) if learned else {}
    of_weights = IntxFakeQuantizeConfig(dtype, group_size=GROUP, **options)
    of_activations = (
        IntxFakeQuantizeConfig(torch.int8, "per_token", is_symmetric=False)
        if weights.endswith("activations")
        else None
    )
    config = QATConfig(weight_config=of_weights, activation_config=of_activations, step="prepare")
    quantize_(net, config)
    if learned:
        initialize_fake_quantizers(net, (torch.zeros(1, CONTEXT, dtype=torch.long),))


class Bounds(TorchDispatchMode):
    """Counts, per pair of number bounds, what reaches torch.clamp at a bound and outside."""

    def __init__(self):
        super().__init__()
        self.counts = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is torch.ops.aten.clamp.default:
            x, lo, hi = (*args, None, None)[:3]
            lo, hi = kwargs.get("min", lo), kwargs.get("max", hi)
            if lo is not None and hi is not None:
                counts = self.counts.setdefault(f"{lo}..{hi}", [0, 0, 0])
                at, outside = (x == lo) | (x == hi), (x < lo) | (x > hi)
                for i, n in enumerate((x.numel(), int(at.sum()), int(outside.sum()))):
                    counts[i] += n
        return function(*args, **kwargs)


@torch.no_grad()
def count(net, x):
    """Per pair of bounds: elements, elements at a bound, elements outside."""
    with Bounds() as bounds:
        net(x[:, :-1])
    return bounds.counts


# ---- Training ------------------------------------------------------------------------------------


@contextmanager
def pinned(gradient):
    """The pin of that name, or torch as it is where there is none: float32 has no clamp."""
    if gradient is None:
        yield
    else:
        with clampgrad.pin(gradient):
            yield


def train(net, chain, steps, rate, seed, gradient, decay=True):
    """Adam, its rate falling along a cosine if `decay`: the mean loss of each part, and counts."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    curve, bounds = [0.0] * PARTS, []
    for step in range(steps):
        if decay:
            for group in optimizer.param_groups:
                group["lr"] = rate * (1 + math.cos(math.pi * step / steps)) / 2
        x = chain.sequences(BATCH, generator)
        if step % (steps // PARTS) == 0:
            bounds.append(count(net, x))
        optimizer.zero_grad()
        with pinned(gradient):
            loss = cross_entropy(net, x)
        loss.backward()
        optimizer.step()
        curve[step * PARTS // steps] += loss.item() * PARTS / steps
    return curve, bounds


@torch.no_grad()
def test(net, chain, seed):
    """Nats a symbol above the best possible loss, and the share of right guesses."""
    x = chain.sequences(TEST, torch.Generator().manual_seed(7000 + seed))
    logits = net(x[:, :-1])[:, 1:]
    best = -chain.log_p[x[:, :-2], x[:, 1:-1]].gather(-1, x[:, 2:, None]).mean()
    right = (logits.argmax(-1) == x[:, 2:]).float().mean()
    loss = F.cross_entropy(logits.flatten(0, 1), x[:, 2:].flatten())
    return dict(excess_loss=(loss - best).item(), accuracy=right.item())
