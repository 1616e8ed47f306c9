"""An attack that starts at pixels of exactly 0 and 1: does the model look robust?

PGD whose forward clamps the attacked image, x + delta, into [0, 1], from delta = 0. Where a pixel is
black or white it starts exactly at a bound, and a gradient of 0 there never lets it move inside.

Caveats. Only attacks that differentiate through the clamp care; those that project afterwards, the
usual kind, do not. The model is linear and its images are black and white, which is the worst case;
on photographs a share of the pixels is affected. More accuracy here is no robustness.
"""

import torch
import torch.nn.functional as F

import clampgrad
from example import bars, main

SHOWN = ("min_norm", "joint", "half", "inclusive", "with_grad")
EPSILON, STEPS = 0.3, 10


def robust_accuracy(images, labels, weight, how):
    delta = torch.zeros_like(images, requires_grad=True)
    # The attack maximises the loss.
    ascent = {"maximize": True} if how == "with_grad" else {}
    for _ in range(STEPS):
        seen = clampgrad.clamp(images + delta, 0, 1, gradient=how, **ascent)
        loss = F.cross_entropy(seen @ weight, labels, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, delta)
        with torch.no_grad():
            delta += EPSILON / 4 * gradient.sign()
            delta.clamp_(-EPSILON, EPSILON)
    attacked = (images + delta).detach().clamp(0, 1)
    return (attacked @ weight).argmax(1).eq(labels).double().mean().item()


def measure():
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 2, (500, 64), generator=generator).float()
    weight = torch.randn(64, 10, generator=generator)
    labels = (images @ weight).argmax(1)  # the model is right on every clean image
    return {
        "epsilon": EPSILON,
        "steps": STEPS,
        "robust_accuracy": {how: robust_accuracy(images, labels, weight, how) for how in SHOWN},
    }


def draw(figure, data):
    bars(figure.subplots(), data["robust_accuracy"], "accuracy under attack")


if __name__ == "__main__":
    main(measure, draw)
