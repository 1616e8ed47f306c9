"""Derivatives of the first and second order are right, forward mode and batches included."""

from functools import partial
from itertools import product

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import clampgrad
from common import OPERATORS
from oracle import EXACT, TABLE

BOUNDS = {"clamp": (-1, 1), "clamp_min": (-1,), "clamp_max": (1,)}


def away_from_ties(*shape):
    """Points on both sides of -1 and 1, none closer than 0.09."""
    return torch.linspace(-2.3, 2.1, 12, dtype=torch.float64).reshape(shape)


# Broadcast, none closer to another than 0.05.
LOW = torch.tensor([-1.05, -0.65, -1.55, 0.25], dtype=torch.float64)
HIGH = torch.tensor([[0.75], [1.15], [-0.15]], dtype=torch.float64)


def call(name, more, x, *bounds):
    namespace = torch.ops.clampgrad if "mingrad" in name else clampgrad
    return getattr(namespace, name)(x.clone(), *bounds, **more)


def functions():
    """(name, function, the arguments to differentiate)"""
    for operator, table in TABLE["operators"].items():
        tensors = [away_from_ties(3, 4), LOW, HIGH][: len(table["arguments"])]
        for convention in EXACT:
            more = {"gradient": convention}
            yield f"{operator} of Tensors, {convention}", partial(call, operator, more), tensors
            for name in (operator, operator + "_") if operator in BOUNDS else ():
                f = with_numbers(name, operator, more)
                yield f"{name}, {convention}", f, [away_from_ties(3, 4)]
    for operator, ending in product(OPERATORS, ("_mingrad", "_mingrad_")):
        name = operator + ending
        yield name, with_numbers(name, operator, {}), [away_from_ties(3, 4).t()]


def with_numbers(name, operator, more):
    return lambda x: call(name, more, x, *BOUNDS[operator])


FUNCTIONS = {name: (f, arguments) for name, f, arguments in functions()}


def leaves_of(name):
    return [a.clone().requires_grad_() for a in FUNCTIONS[name][1]]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_first_order(name):
    assert gradcheck(
        FUNCTIONS[name][0],
        leaves_of(name),
        check_forward_ad=True,
        check_batched_grad=True,
        check_batched_forward_grad=True,
    )


@pytest.mark.parametrize("name", FUNCTIONS)
def test_second_order(name):
    # Curved on both sides, or the second derivative is 0 and the check is empty.
    assert gradgradcheck(
        lambda *args: FUNCTIONS[name][0](*args).sin(),
        leaves_of(name),
        check_fwd_over_rev=True,
        check_rev_over_rev=True,
        check_batched_grad=True,
    )


@pytest.mark.compiled("it is an operator of its own there alone")
def test_the_backward_operator():
    g = torch.randn(12, dtype=torch.float64, requires_grad=True)
    x = away_from_ties(12).requires_grad_()
    for bounds in ((-1, 1), (-1, None), (None, 1)):

        def f(g, x):
            return torch.ops.clampgrad.clamp_mingrad_backward(g, x, *bounds)

        assert gradcheck(f, (g, x), check_forward_ad=True, check_batched_grad=True)
        assert gradgradcheck(f, (g, x), check_fwd_over_rev=True)
