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
PARTS = 10  # of the training, for the counts
WEIGHTS = {
    "float32": ("none",),  # which has no clamp
    **dict.fromkeys(("int8", "int4", "int2"), GRADIENTS),
    **dict.fromkeys(("int4, learned scale", "int4, int8 activations"), ("inclusive", "joint")),
}


def runs(seeds):
    for seed in seeds:
        for weights, gradients in WEIGHTS.items():
            for gradient in gradients:
                yield dict(weights=weights, gradient=gradient, seed=seed)


def run(weights, gradient, seed, steps=QAT_STEPS):
    net, chain = copy.deepcopy(pretrained(seed))
    if weights != "float32":
        quantise(net, weights)
    start = test(net, chain, seed)
    if gradient == CONTROL:
        move(net.parameters())
    pinned = {"none": None, CONTROL: "inclusive"}.get(gradient, gradient)
    bounds = trained(net, chain, steps, QAT_RATE, 5000 + seed, pinned)
    return dict(before=start, **test(net, chain, seed), bounds=bounds, steps=steps)


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

    def __init__(self):
        older, newer = 1.5 * torch.randn(2, SYMBOLS, SYMBOLS)
        self.log_p = (older[:, None] + newer).log_softmax(-1)
        self.p = self.log_p.exp()

    def sequences(self, n):
        columns = list(torch.randint(SYMBOLS, (2, n)))
        for _ in range(CONTEXT - 1):
            columns.append(torch.multinomial(self.p[columns[-2], columns[-1]], 1)[:, 0])
        return torch.stack(columns, 1)


def cross_entropy(net, x):
    """The loss of every symbol that has two before it."""
    logits = net(x[:, :-1])[:, 1:]
    return F.cross_entropy(logits.flatten(0, 1), x[:, 2:].flatten())


@functools.lru_cache(1)
def pretrained(seed):
    torch.manual_seed(seed)
    chain = Chain()
    torch.manual_seed(seed)
    net = Transformer()
    trained(net, chain, FLOAT_STEPS, FLOAT_RATE, 3000 + seed)
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
    of_activations = None
    if weights.endswith("activations"):
        of_activations = IntxFakeQuantizeConfig(torch.int8, "per_token", is_symmetric=False)
    parts = dict(weight_config=of_weights, activation_config=of_activations)
    quantize_(net, QATConfig(**parts, step="prepare"))
    if learned:
        initialize_fake_quantizers(net, (torch.zeros(1, CONTEXT, dtype=torch.long),))


class Bounds(TorchDispatchMode):
    """Counts what reaches torch.clamp: {pair of number bounds: [elements, at a bound, outside]}."""

    def __init__(self):
        super().__init__()
        self.counts = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.clamp.default and len(args) == 3:
            x, lo, hi = args
            counts = self.counts.setdefault(f"{lo}..{hi}", [0, 0, 0])
            at, outside = (x == lo) | (x == hi), (x < lo) | (x > hi)
            for i, n in enumerate((x.numel(), int(at.sum()), int(outside.sum()))):
                counts[i] += n
        return function(*args, **(kwargs or {}))


# ---- Training ------------------------------------------------------------------------------------


def trained(net, chain, steps, rate, seed, pinned=None):
    """Trains under a pin; what is at a bound when each part of the training begins."""
    parts = []

    def loss(step):
        x = chain.sequences(BATCH)
        if step % (steps // PARTS) == 0:
            with torch.no_grad(), Bounds() as bounds:
                net(x[:, :-1])
            parts.append(bounds.counts)
        with clampgrad.pin(pinned) if pinned else nullcontext():
            return cross_entropy(net, x)

    torch.manual_seed(seed)
    train(net, steps, rate, loss, decay=True)
    return parts


@torch.no_grad()
def test(net, chain, seed):
    """Nats a symbol above the best possible loss, and the share of right guesses."""
    torch.manual_seed(7000 + seed)
    x = chain.sequences(TEST)
    logits = net(x[:, :-1])[:, 1:]
    best = -chain.log_p[x[:, :-2], x[:, 1:-1]].gather(-1, x[:, 2:, None]).mean()
    right = (logits.argmax(-1) == x[:, 2:]).float().mean()
    loss = F.cross_entropy(logits.flatten(0, 1), x[:, 2:].flatten())
    return dict(excess_loss=(loss - best).item(), accuracy=right.item())
