"""A parameter that stands exactly at its bound, and a target that moves inside: does it follow?

The loss wants 1.5, outside, for 100 steps, and 0.5 for 100 more. After each step the
parameter is projected into [0, 1], so by then it stands at 1 exactly, where `min_norm` and `joint`
say 0 for good, and `half`, `inclusive` and `with_grad` let it go.

Caveats. Without the projection it drifts to 1.5 or stops beyond 1, where no exact convention
moves it again. A clamp in the loss and a projection after the step do the same work twice: one of
them is enough, and with the projection alone no convention is involved.
"""

import torch

import clampgrad
from example import main

SHOWN = ("min_norm", "joint", "half", "inclusive", "with_grad")


def path(how):
    x = torch.tensor(0.5, requires_grad=True)
    seen = []
    for step in range(200):
        target = 1.5 if step < 100 else 0.5
        loss = (clampgrad.clamp(x, 0, 1, gradient=how) - target).square()
        (gradient,) = torch.autograd.grad(loss, x)
        x = (x - 0.05 * gradient).detach().clamp_(0, 1).requires_grad_()
        seen.append(x.item())
    return seen


def measure():
    return {"end": {how: round(path(how)[-1], 5) for how in SHOWN}}


def draw(figure, data):
    panel = figure.subplots()
    panel.step([0, 100, 200], [1.5, 1.5, 0.5], color="0.8", label="target")
    for i, how in enumerate(SHOWN):
        panel.plot(path(how), label=how, linewidth=6 - i)
    panel.set(xlabel="step", ylabel="x")
    panel.legend(fontsize=8)


if __name__ == "__main__":
    main(measure, draw)
