"""Weights fake-quantised to int8, int4 and int2: how many are exactly at a bound?

Quantisation-aware training divides the weights by a scale, rounds and clamps them, and passes the
gradient straight through the rounding. The scale comes from the largest weight, so some weights are
always exactly at a bound, and more of them with fewer bits. The audit counts them and reports how far
the gradient of the clamp would move with another convention.

Caveats. Random weights stand in for a trained model, and the loss is artificial: shares, not accuracies.
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
