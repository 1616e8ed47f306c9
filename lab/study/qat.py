"""Quantisation-aware training with torchao: does it matter what the clamp's gradient is at a bound?

torchao divides by a scale, rounds, and calls torch.clamp with the smallest and the largest integer, so
that all weights of the outermost steps stand exactly at a bound. Here a small transformer is trained in
float32 and then trained on with fake-quantised weights, under `clampgrad.pin`, which torchao's
clamps obey. The data come from a Markov chain of order 2, of which the best possible loss is known.
"""

import copy
import functools
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import clampgrad
from lab.study.training import CONTROL, move, train

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


def run(weights, gradient, seed, steps=QAT_STEPS):
    net, chain = pretrained(seed)
    net = copy.deepcopy(net)
    if weights != "float32":
        quantise(net, weights)
    start = test(net, chain, seed)
    if gradient == CONTROL:
        move(net.parameters())
    # float32 has no clamp.
    pinned = {"none": nullcontext(), CONTROL: clampgrad.pin("inclusive")}
    pin = pinned[gradient] if gradient in pinned else clampgrad.pin(gradient)
    curve, bounds = trained(net, chain, steps, QAT_RATE, 5000 + seed, pin)
    end = test(net, chain, seed)
    return dict(before=start, **end, curve=curve, bounds=bounds, steps=steps)


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
    trained(net, chain, FLOAT_STEPS, FLOAT_RATE, 3000 + seed, nullcontext())
    return net, chain


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


def trained(net, chain, steps, rate, seed, pin):
    """The mean loss of each part of the training, and what is at a bound when it begins."""
    generator = torch.Generator().manual_seed(seed)
    curve, bounds = [0.0] * PARTS, []

    def loss(step):
        x = chain.sequences(BATCH, generator)
        if step % (steps // PARTS) == 0:
            bounds.append(count(net, x))
        with pin:
            value = cross_entropy(net, x)
        curve[step * PARTS // steps] += value.item() * PARTS / steps
        return value

    train(net, steps, rate, loss, decay=True)
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
