"""min_norm against an oracle that knows no rule: subgradients are sampled, and the shortest wins.

Around a tie an operator is made of smooth pieces. Small random steps of the arguments that are
being differentiated land on all of them; finite differences of torch's own forward give the
gradient of each; their convex hull is Clarke's subdifferential. Nothing in here says who wins.
"""

from itertools import combinations, product

import numpy
import pytest
import torch
from scipy.optimize import nnls

import clampgrad
from testing.matrix.reference import ARGUMENTS

STEP = 2.0**-20  # of the differences; the random steps are up to 0.1


def cases():
    """Operator, indices of the differentiated arguments, and whether the constants are numbers."""
    for operator, names in ARGUMENTS.items():
        indices = range(len(names))
        for chosen in (c for size in indices for c in combinations(indices, size + 1)):
            label = f"{operator}: {', '.join(names[i] for i in chosen)}"
            yield pytest.param(operator, chosen, False, id=label)
            # The input and both sides of a maximum are Tensors always; bounds can be numbers.
            if operator.startswith("clamp") and set(indices[1:]) - set(chosen):
                yield pytest.param(operator, chosen, True, id=label + "; numbers")


def pieces(f, point):
    """The gradients that f, a function of rows, takes on around a point, each of them once."""
    nearby = point + 0.2 * torch.rand(200, len(point), dtype=torch.float64) - 0.1
    steps = STEP * torch.eye(len(point), dtype=torch.float64)
    slopes = torch.stack([(f(nearby + s) - f(nearby - s)) / (2 * STEP) for s in steps], 1)
    return slopes.round(decimals=6).unique(dim=0).numpy(force=True)


def least_norm(gradients):
    """The shortest vector of a convex hull: the weights that nnls finds, made to sum to 1.

    For weights t * v, where v sums to 1, nnls minimises t**2 * |v @ gradients|**2 + (t - 1)**2,
    and whatever t is, the best v is the one with the shortest sum.
    """
    system = numpy.vstack([gradients.T, numpy.ones(len(gradients))])
    weights, _ = nnls(system, numpy.eye(len(system))[-1])
    return weights @ gradients / weights.sum()


def forward(operator, point, chosen):
    """torch's forward as a function of rows of the chosen arguments; the others stay."""

    def f(rows):
        args = list(point.expand(len(rows), -1).T)
        for i, column in zip(chosen, rows.T):
            args[i] = column
        return getattr(torch, operator)(*args)

    return f


def gradient(operator, point, chosen, numbers):
    """clampgrad's gradient of the chosen arguments."""
    args = [v.clone().requires_grad_(i in chosen) for i, v in enumerate(point[:, None])]
    called = [v.item() if numbers and i and i not in chosen else v for i, v in enumerate(args)]
    y = getattr(clampgrad, operator)(*called, gradient="min_norm")
    return torch.cat(torch.autograd.grad(y, [args[i] for i in chosen])).numpy(force=True)


@pytest.mark.parametrize("operator, chosen, numbers", list(cases()))
def test_least_norm(operator, chosen, numbers):
    for values in product([0.0, 1.0, 2.0], repeat=len(ARGUMENTS[operator])):
        point = torch.tensor(values, dtype=torch.float64)
        expected = least_norm(pieces(forward(operator, point, chosen), point[list(chosen)]))
        actual = gradient(operator, point, chosen, numbers)
        numpy.testing.assert_allclose(actual, expected, atol=1e-9, err_msg=str(values))


def test_the_oracle_finds_what_is_known():
    origin = torch.zeros(2, dtype=torch.float64)
    assert pieces(lambda rows: rows[:, 0].abs(), origin[:1]).tolist() == [[-1], [1]]
    assert pieces(lambda rows: rows.amax(1), origin).tolist() == [[0, 1], [1, 0]]
    for gradients, expected in (([[1], [2]], [1]), ([[2, 0], [0, 1]], [0.4, 0.8])):
        numpy.testing.assert_allclose(least_norm(numpy.array(gradients)), expected, atol=1e-12)
