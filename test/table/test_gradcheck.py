"""Derivatives of the first and second order are right, forward mode and batches included."""

from itertools import product

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import clampgrad
from oracle import EXACT, TABLE

BOUNDS = {"clamp": (-1, 1), "clamp_min": (-1,), "clamp_max": (1,)}


def away_from_ties(*shape):
    """Points on both sides of -1 and 1, none closer than 0.09."""
    return torch.linspace(-2.3, 2.1, 12, dtype=torch.float64).reshape(shape)


# Broadcast, none closer to another than 0.05.
LOW = torch.tensor([-1.05, -0.65, -1.55, 0.25], dtype=torch.float64)
HIGH = torch.tensor([[0.75], [1.15], [-0.15]], dtype=torch.float64)


def of_copies(namespace, name, *bounds, **more):
    function = getattr(namespace, name)
    return lambda x, *args: function(x.clone(), *args, *bounds, **more)


def functions():
    """name: function, the arguments to differentiate"""
    x, cases = away_from_ties(3, 4), {}
    for (operator, table), c in product(TABLE["operators"].items(), EXACT):
        of_tensors = of_copies(clampgrad, operator, gradient=c)
        cases[f"{operator} of Tensors, {c}"] = of_tensors, [x, LOW, HIGH][: len(table["arguments"])]
        for name in (operator, operator + "_") if operator in BOUNDS else ():
            cases[f"{name}, {c}"] = of_copies(clampgrad, name, *BOUNDS[operator], gradient=c), [x]
    for operator, ending in product(BOUNDS, ("_mingrad", "_mingrad_")):
        name = operator + ending
        cases[name] = of_copies(torch.ops.clampgrad, name, *BOUNDS[operator]), [x.t()]
    if clampgrad.implementation == "compiled":  # the backward is an operator of its own
        for bounds in ((-1, 1), (-1, None), (None, 1)):
            backward = of_copies(torch.ops.clampgrad, "clamp_mingrad_backward", *bounds)
            cases[f"backward, {bounds}"] = backward, [x.flip(0), x]
    return cases


FUNCTIONS = functions()
FORWARD = {"check_forward_ad": True, "check_batched_forward_grad": True}
SECOND = {"check_fwd_over_rev": True, "check_rev_over_rev": True}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_first_and_second_order(name):
    f, arguments = FUNCTIONS[name]
    leaves = [a.clone().requires_grad_() for a in arguments]
    assert gradcheck(f, leaves, check_batched_grad=True, **FORWARD)
    # Curved on both sides; otherwise the second derivative is 0 and the check is empty.
    assert gradgradcheck(lambda *args: f(*args).sin(), leaves, check_batched_grad=True, **SECOND)
