"""Fit an image through clamp(0, 1), from a start whose values are mostly outside [0, 1].

With an exact gradient, a value that starts outside never moves: a dead pixel. The loss is the mean
of the squared errors in one run and their sum in the other: the same problem on another scale,
which matters only to a gradient that ignores the scale of the loss.
"""

import torch

import clampgrad

SIZE = 64
STEPS = 300
LEARNING_RATE = 0.05
TOLERANCE = 0.05  # a pixel is wrong if any of its three channels is off by more
REDUCTIONS = ("mean", "sum")


def target():
    """A sun over a hill, with colours at 0 and at 1 among them."""
    y, x = torch.meshgrid(torch.linspace(0, 1, SIZE), torch.linspace(0, 1, SIZE), indexing="ij")

    def paint(where, red, green, blue):
        colour = torch.stack([torch.as_tensor(c).expand(SIZE, SIZE) for c in (red, green, blue)])
        return torch.where(where, colour, image)

    image = torch.stack([0.2 + 0.6 * y, 0.4 + 0.4 * y, 0.9 - 0.2 * y])
    image = paint((x - 0.7) ** 2 + (y - 0.3) ** 2 < 0.029, 1.0, 0.85, 0.3)
    image = paint(y > 0.65 + 0.1 * torch.sin(7 * x), 0.0, 0.75 - 0.4 * y, 0.3)
    return paint(y > 0.85 - 0.08 * torch.sin(5 * x), 0.15 + 0.2 * x, 0.3, 0.0)


def start():
    return 0.5 + torch.randn(3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))


def fit(goal, how, reduction, tick):
    pixels = start().requires_grad_()
    optimiser = torch.optim.Adam([pixels], lr=LEARNING_RATE)
    for _ in range(STEPS):
        optimiser.zero_grad()
        error = clampgrad.clamp(pixels, 0, 1, gradient=how) - goal
        getattr(error.square(), reduction)().backward()
        optimiser.step()
        tick()
    return pixels.detach().clamp(0, 1)


def wrong(image, goal):
    """The share of wrong pixels."""
    return ((image - goal).abs() > TOLERANCE).any(0).double().mean().item()


def runs():
    return [(how, reduction) for how in clampgrad.CONVENTIONS for reduction in REDUCTIONS]


def measure(tick=lambda: None):
    """The shares of wrong pixels, and the images. `tick` is called after every step."""
    goal, before = target(), start().clamp(0, 1)
    images = {(how, reduction): fit(goal, how, reduction, tick) for how, reduction in runs()}
    data = {
        "size": SIZE,
        "steps": STEPS,
        "learning_rate": LEARNING_RATE,
        "tolerance": TOLERANCE,
        "wrong": {
            "start": wrong(before, goal),
            **{
                how: {reduction: wrong(images[how, reduction], goal) for reduction in REDUCTIONS}
                for how in clampgrad.CONVENTIONS
            },
        },
    }
    return data, {"target": goal, "start": before, **images}
