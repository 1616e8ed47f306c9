"""The clamps inside a model: the gradient they have, and how many elements stand exactly at a bound."""

import functools

import torch

import clampgrad


def clamp(convention):
    """clamp(x, lo, hi), with the gradient of a convention."""
    return functools.partial(clampgrad.clamp, gradient=convention)


class Kinks:
    """Clamps that count while `window` is a number: the part of the training."""

    def __init__(self, clamp, precision):
        self.clamp = clamp
        self.precision = precision
        self.window = None
        # {what: {site: the number in each window}}
        self.counts = {what: {} for what in ("elements", "at_bound", "outside")}

    def relu(self, x, site):
        x = self.precision.at_clamp(x)
        self.count(x, site, lo=0)
        return self.clamp(x, 0, None)

    def relu6(self, x):
        x = self.precision.at_clamp(x)
        self.count(x, "relu6 at 0", lo=0)
        self.count(x, "relu6 at 6", hi=6)
        return self.clamp(x, 0, 6)

    def hardswish(self, x):
        x = self.precision.at_clamp(x)
        shifted = x + 3
        self.count(shifted, "hardswish at -3", lo=0)
        self.count(shifted, "hardswish at 3", hi=6)
        return x * self.clamp(shifted, 0, 6) / 6

    def swiglu(self, gate, up, limit):
        """The forms that published models have: at 7 gpt-oss's, at 10 DeepSeek's."""
        gate, up = self.precision.at_clamp(gate), self.precision.at_clamp(up)
        self.count(gate, "gate at the limit", hi=limit)
        self.count(up, "up at a limit", lo=-limit, hi=limit)
        gate, up = self.clamp(gate, None, limit), self.clamp(up, -limit, limit)
        if limit == 7:
            return gate * torch.sigmoid(1.702 * gate) * (up + 1)
        return torch.nn.functional.silu(gate) * up

    def count(self, x, site, lo=-torch.inf, hi=torch.inf):
        if self.window is None:
            return
        at, outside = (x == lo) | (x == hi), (x < lo) | (x > hi)
        for what, n in zip(self.counts, (x.numel(), int(at.sum()), int(outside.sum()))):
            windows = self.counts[what].setdefault(site, [])
            windows += [0] * (self.window + 1 - len(windows))
            windows[self.window] += n
