"""Pixels that start outside [0, 1]: are they ever fitted?

An image is fitted through clamp(0, 1) by Adam. With an exact gradient a value that starts outside
hears nothing and stays what it was: a dead pixel. `with_grad` and `straight_through` move it.

Caveats. They do so because the true minimum is inside; where it is not, straight_through lets values
drift away. `restoring` ignores the scale of the loss: on a mean over many pixels its step outside
is far larger than any inside, and Adam's memory of it does harm. It does well on the sum.
"""

import image_fit
from example import bars, main

SHOWN = ("min_norm", "with_grad", "restoring", "straight_through")


def measure():
    goal = image_fit.target()
    wrong = {"(start)": image_fit.wrong(image_fit.start().clamp(0, 1), goal)}
    for how in SHOWN:
        wrong[how] = image_fit.wrong(image_fit.fit(goal, how, "mean", lambda: None), goal)
    return {"steps": image_fit.STEPS, "wrong": wrong}


def draw(figure, data):
    bars(figure.subplots(), data["wrong"], "share of wrong pixels")


if __name__ == "__main__":
    main(measure, draw)
