"""The clamps inside a model: the gradient they have, and how many elements stand exactly at a bound."""

import torch

import clampgrad


class Kinks:
    """Clamps by clampgrad, under one convention, that count while `window` is a number."""

    def __init__(self, gradient, precision):
        self.gradient = gradient
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

    def clamp(self, x, lo, hi):
        return clampgrad.clamp(x, lo, hi, gradient=self.gradient)

    def count(self, x, site, lo=None, hi=None):
        if self.window is None:
            return
        x = x.detach()
        at, outside = torch.zeros((2, *x.shape), dtype=torch.bool)
        for bound, beyond in ((lo, torch.lt), (hi, torch.gt)):
            if bound is not None:
                at, outside = at | (x == bound), outside | beyond(x, bound)
        for what, n in zip(self.counts, (x.numel(), int(at.sum()), int(outside.sum()))):
            windows = self.counts[what].setdefault(site, [])
            windows += [0] * (self.window + 1 - len(windows))
            windows[self.window] += n
