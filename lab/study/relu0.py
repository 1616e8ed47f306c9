"""ReLU'(0) = alpha: the correct gradient, alpha * g, and that of a widely read experiment, alpha.

Bertoin, Bolte, Gerchinovitz and Pauwels, "Numerical influence of ReLU'(0) on backpropagation" (2021).
The code that was published with it puts alpha itself where the input is 0, whatever gradient arrives
(https://github.com/deel-ai/relu-prime, relu.py, which also has ReLU6 so). Here both formulas train
one network from the same weights on the same data.
"""

import torch

from lab.study import ties
from lab.study.kinks import Kinks, clamp
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


def relu_prime(alpha, formula):
    """A clamp for `Kinks.relu` with this gradient where the input is 0."""

    def relu(x, lo, hi):
        at_zero = x == 0
        if x.requires_grad:  # g is that of `inclusive`, which passes at 0
            x.register_hook(
                lambda g: torch.where(at_zero, alpha if formula == "alpha" else alpha * g, g)
            )
        return clamp("inclusive")(x, lo, hi)

    return relu


def run(precision, alpha, formula, seed):
    kinks = Kinks(relu_prime(alpha, formula), PRECISIONS[precision])
    ends = ties.trained(ties.build("mlp", seed), kinks, seed)
    counts = {what: sum(map(sum, kinks.counts[what].values())) for what in ("at_bound", "elements")}
    return {**ends, **counts}
