"""The gradients that the contract requires, in plain torch: looks up
conventions.yaml element by element.

There is no rule in here. How the arguments of one element compare decides its row, and the row
holds the factors.
"""

from fractions import Fraction
from functools import cache
from itertools import combinations
from pathlib import Path

import torch
import yaml

TABLE = yaml.safe_load((Path(__file__).with_name("conventions.yaml")).read_text())
CONVENTIONS = tuple(TABLE["conventions"])
PSEUDO = tuple(name for name in TABLE["pseudo_gradients"]["rows"][0] if name in CONVENTIONS)
EXACT = tuple(name for name in CONVENTIONS if name not in PSEUDO)
# A clamp by a number and a Tensor is one bound after the other in these.
TWO_STEP = tuple(name for name in EXACT if name not in TABLE["one_step"])
# The operators that clamp, which have pseudo-gradients, and those of two Tensors, which are alike.
CLAMPS = tuple(TABLE["pseudo_gradients"]["operators"])
EXTREMA = tuple(name for name in TABLE["operators"] if name not in CLAMPS)


def encode_position(*args):
    """One integer per element: which arguments are NaN, and how each pair of them compares."""
    code = torch.zeros(torch.broadcast_shapes(*(a.shape for a in args)), dtype=torch.int64)
    for a in args:
        code = 2 * code + a.isnan()
    for a, b in combinations(args, 2):
        code = 4 * code + 3 * (a < b) + 2 * (a == b) + 1 * (a > b)
    return code


@cache
def lookup(operator, bounds_are, convention, differentiated):
    """For each argument, its factor by comparison code; NaN where no row has that code."""
    names = TABLE["operators"][operator]["arguments"]
    size = 2 ** len(names) * 4 ** len(list(combinations(names, 2)))
    count = len(names) if bounds_are == "tensors" else 1
    table = torch.full((count, size), torch.nan, dtype=torch.float64)
    for row in TABLE["operators"][operator]["rows"]:
        values = (
            row[bounds_are][convention]
            if bounds_are == "tensors"
            else [row[bounds_are][convention]]
        )
        # The package has the same rule (clampgrad/_contract/table.py, csrc/kernels/rules/). It is
        # written again here on purpose: the oracle is an independent witness of conventions.yaml.
        shared = convention in TABLE["depends_on_differentiated"] and len(row["active"]) > 1
        if shared and not differentiated.issuperset(row["active"]):
            values = [0] * count
        values = torch.tensor([float(Fraction(v)) for v in values], dtype=torch.float64)
        for point in row["points"]:
            table[:, encode_position(*torch.tensor(point, dtype=torch.float64))] = values
    return table


def factors(operator, bounds_are, convention, args, differentiated=None):
    """The factor of each argument at each element; bounds_are is "numbers" or "tensors".

    `differentiated` names the arguments that are being differentiated; all of them by default.
    Numbers are passed as tensors too, in the dtype of the result: that is how they compare.
    """
    names = TABLE["operators"][operator]["arguments"]
    if differentiated is None:
        differentiated = names if bounds_are == "tensors" else names[:1]
    factor = lookup(operator, bounds_are, convention, frozenset(differentiated))[
        :, encode_position(*args)
    ]
    assert not factor.isnan().any(), f"{operator}: an element is in no row of conventions.yaml"
    return factor


def scaled(g, factor):
    """g times a factor, where a factor of 0 blocks whatever g is."""
    return torch.where(factor == 0, 0, g * factor.to(g.dtype))


def selection(convention, maximize, x, y, g):
    """The rule of a pseudo-gradient at each element: "g", or a number to put in its place."""
    rows = {row["position"]: row for row in TABLE["pseudo_gradients"]["rows"]}
    key = convention + (", maximize" if maximize else "")
    for a, b, v in zip(x.flatten().tolist(), y.flatten().tolist(), g.flatten().tolist()):
        position = "y is NaN" if b != b else "x = y" if a == b else "x < y" if a < b else "x > y"
        column = "g is NaN" if v != v else "g = 0" if v == 0 else "g < 0" if v < 0 else "g > 0"
        yield rows[position][key][TABLE["pseudo_gradients"]["columns"].index(column)]


def pseudo_gradient(convention, maximize, x, y, g):
    """The gradient of x under a pseudo-gradient."""
    chosen = zip(g.flatten().tolist(), selection(convention, maximize, x, y, g))
    return torch.tensor([v if c == "g" else c for v, c in chosen], dtype=g.dtype).view_as(g)


def gradient_of_x(convention, x, g, min=None, max=None, maximize=False):
    """The gradient of x in clamp, clamp_min or clamp_max with numbers for bounds.

    A clamp with one bound has the rows of clamp_min and clamp_max.
    """
    given = {"min": min, "max": max}
    bounds = {k: torch.tensor(v, dtype=x.dtype) for k, v in given.items() if v is not None}
    operator = "clamp" if len(bounds) == 2 else "clamp_" + next(iter(bounds))
    if convention in PSEUDO:
        y = getattr(torch, operator)(x, **{k: v for k, v in given.items() if v is not None})
        return pseudo_gradient(convention, maximize, x, y, g)
    return scaled(g, factors(operator, "numbers", convention, (x, *bounds.values()))[0])
