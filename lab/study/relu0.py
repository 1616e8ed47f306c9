"""ReLU'(0) = alpha: the correct gradient, alpha * g, and that of a widely read experiment, alpha.

Bertoin, Bolte, Gerchinovitz and Pauwels, "Numerical influence of ReLU'(0) on backpropagation" (2021).
The code that was published with it puts alpha itself where the input is 0, whatever gradient arrives
(https://github.com/deel-ai/relu-prime, relu.py, which also has ReLU6 so). Here both formulas train
one network from the same weights on the same data.
"""

import torch

from lab.study import ties
from lab.study.kinks import Kinks
from lab.study.precision import PRECISIONS

ALPHAS = (0, 1, 100)
FORMULAS = ("alpha * g", "alpha")
IN = ("float32", "bfloat16", "float16", "float8")


def runs(seeds):
    for seed in seeds:
        for precision in IN:
            for alpha in ALPHAS:
                for formula in FORMULAS[: 2 if alpha else 1]:  # 0 is 0 in both
                    yield dict(precision=precision, alpha=alpha, formula=formula, seed=seed)


class _ReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha, formula):
        ctx.save_for_backward(x)
        ctx.alpha, ctx.formula = alpha, formula
        return x.clamp_min(0)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        at_zero = torch.full_like(g, ctx.alpha) if ctx.formula == "alpha" else ctx.alpha * g
        return torch.where(x > 0, g, torch.where(x == 0, at_zero, 0)), None, None


class ReLUPrime(Kinks):
    def __init__(self, alpha, formula, precision):
        super().__init__(None, precision)
        self.alpha, self.formula = alpha, formula

    def clamp(self, x, lo, hi):
        assert (lo, hi) == (0, None)
        return _ReLU.apply(x, self.alpha, self.formula)


def run(precision, alpha, formula, seed):
    net = ties.build("mlp", seed)
    kinks = ReLUPrime(alpha, formula, PRECISIONS[precision])
    ends = ties.trained(net, kinks, seed)
    counts = {what: sum(map(sum, kinks.counts[what].values())) for what in ("at_bound", "elements")}
    return {**ends, **counts}
