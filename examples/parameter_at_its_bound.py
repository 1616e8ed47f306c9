"""A parameter is exactly at its bound, and the target moves inside: does the parameter follow?

The target is 1.5, outside, for 100 steps, then 0.5 for another 100. The parameter is projected into
[0, 1] after each step, so it ends up at exactly 1. There the gradient of `min_norm` and `joint` is
0, and it stays; `half`, `inclusive` and `with_grad` release it.

Caveats. Without the projection the parameter stops beyond 1, where no exact convention moves it
again. A clamp in the loss and a projection after the step do the same work twice: one of them is
enough, and with the projection alone no convention is involved.
"""

import torch

import clampgrad
from clampgrad._tools.style import GREY, RED
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
    for panel, how in zip(figure.subplots(1, len(SHOWN), sharey=True), SHOWN):
        panel.step(
            [0, 100, 200], [1.5, 1.5, 0.5], color=GREY, alpha=0.5, linewidth=4, label="target"
        )
        panel.plot(path(how), color=RED, label="x")
        panel.set_title(f"{how}\nends at {data['end'][how]:.2g}", fontsize=9)
        panel.set_xlabel("step")
        panel.set_xticks([0, 200])
    figure.legend(*panel.get_legend_handles_labels(), loc="outside lower center", ncols=2)


if __name__ == "__main__":
    main(measure, draw)
