"""Weights fake-quantised to int8, int4 and int2: how many stand exactly at a bound?

In quantisation-aware training the weights are divided by a scale, rounded and clamped, and the gradient
goes straight through the rounding. The scale is that of the largest weight, so some always stand
exactly at a bound, and the fewer bits the more. The audit counts them, and how far the
gradient that the clamp hands back would move with another convention.

Caveats. Random weights stand in for a trained model, and the loss is made up: shares, not accuracies.
"""

import torch

import clampgrad
from example import main

EXACT = clampgrad.CONVENTIONS[:4]


class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g


def quantised(weight, bits):
    high = 2 ** (bits - 1) - 1
    scale = weight.detach().abs().amax(1, keepdim=True) / high
    return scale * clampgrad.clamp(Round.apply(weight / scale), -high, high, gradient="inclusive")


def audit(bits):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(256, 64, generator=generator).requires_grad_()
    x, y = (torch.randn(512, n, generator=generator) for n in (64, 256))
    with clampgrad.audit() as report:
        (x @ quantised(weight, bits).T - y).square().mean().backward()
    (site,) = report
    return {
        "at a bound": site.at_bound / site.elements,
        "moved": {how: site.moved[how] for how in EXACT},
    }


def measure():
    return {f"int{bits}": audit(bits) for bits in (8, 4, 2)}


def draw(figure, data):
    left, right = figure.subplots(1, 2)
    left.bar(list(data), [row["at a bound"] for row in data.values()])
    left.set_ylabel("share of weights at a bound")
    for i, how in enumerate(EXACT):
        places = [place + 0.2 * (i - 1.5) for place in range(len(data))]
        right.bar(places, [row["moved"][how] for row in data.values()], width=0.2, label=how)
    right.set_xticks(range(len(data)), list(data))
    right.set_ylabel("gradient moves, from inclusive")
    right.legend(fontsize=8)


if __name__ == "__main__":
    main(measure, draw)
