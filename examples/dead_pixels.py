"""Pixels that start outside [0, 1]: does the optimiser ever reach them?

An image is fitted through clamp(0, 1) by Adam. With an exact gradient, a value that starts outside
receives no gradient and never changes: a dead pixel. `with_grad` and `straight_through` move it.

Caveats. They succeed because the true minimum is inside; where it is not, straight_through lets
values drift away. `restoring` ignores the scale of the loss: on a mean over many pixels its step
outside is far larger than any step inside, and Adam remembers it. It succeeds on the sum.
"""

from functools import cache

import image_fit
from example import main

SHOWN = ("min_norm", "with_grad", "restoring", "straight_through")


@cache
def images():
    goal = image_fit.target()
    fits = {how: image_fit.fit(goal, how, "mean", lambda: None) for how in SHOWN}
    return {"(target)": goal, "(start)": image_fit.start().clamp(0, 1), **fits}


def measure():
    goal = images()["(target)"]
    wrong = {name: image_fit.wrong(image, goal) for name, image in images().items()}
    return {"steps": image_fit.STEPS, "wrong": {k: v for k, v in wrong.items() if k != "(target)"}}


def draw(figure, data):
    for panel, (name, image) in zip(figure.subplots(2, 3).flat, images().items(), strict=True):
        panel.imshow(image.permute(1, 2, 0).numpy(), interpolation="nearest")
        share = f"\n{data['wrong'][name]:.0%} wrong" if name in data["wrong"] else ""
        panel.set_title(name.strip("()") + share, fontsize=9)
        panel.axis("off")


if __name__ == "__main__":
    main(measure, draw)
