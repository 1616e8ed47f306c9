"""An attack that starts at pixels of exactly 0 and 1: does the model look robust?

PGD clamps the attacked image, x + delta, into [0, 1] in its forward and starts from delta = 0. A
black or white pixel starts exactly at a bound, and if the gradient there is 0, it never moves.

Caveats. Only attacks that differentiate through the clamp are affected; those that project
after the step, the usual kind, are not. The model is linear and its images are black and
white, which is the worst case; in photographs only some pixels are affected. A higher
accuracy here is not robustness.
"""

import torch
import torch.nn.functional as F

import clampgrad
from example import bars, main

SHOWN = ("min_norm", "joint", "half", "inclusive", "with_grad")
EPSILON = 0.3
STEPS = 10


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
    panel = figure.subplots()
    bars(panel, data["robust_accuracy"], "accuracy under attack", "{:.1%}")
    panel.xaxis.set_major_formatter("{x:.0%}")


if __name__ == "__main__":
    main(measure, draw)
