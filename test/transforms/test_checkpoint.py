"""A checkpoint that is not reentrant runs its function again in backward,
whatever surrounds the two."""

from contextlib import nullcontext
from functools import partial
from itertools import product

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from testing.comparing import CALLS, Dispatched, assert_same

MODES = {"no mode": nullcontext, "a mode": lambda: Dispatched(lambda function: None)}


def arguments():
    values = [[-1.0, 0, 1, 0.5, 2], [0.0, 0, 0, 0.5, 1], [1.0, 1, 1, 0.5, 0]]
    return [torch.tensor(v, requires_grad=True) for v in values]


def gradients(y, args, **keywords):
    grads = torch.autograd.grad(y, args, allow_unused=True, **keywords)
    return [torch.zeros(()) if g is None else g for g in grads]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("forward, backward, batched", [*product(MODES, MODES, (False, True))])
def test_what_is_saved_depends_on_the_tensors_alone(call, forward, backward, batched):
    args, f = arguments(), CALLS[call]
    g = torch.eye(5) if batched else torch.arange(1.0, 6)
    expected = gradients(f(*args), args, grad_outputs=g, is_grads_batched=batched)
    with MODES[forward]():
        y = checkpoint(f, *args, use_reentrant=False)
    with MODES[backward]():
        actual = gradients(y, args, grad_outputs=g, is_grads_batched=batched)
    assert_same(y, f(*args))
    assert_same(actual, expected)


@pytest.mark.parametrize("call", CALLS)
def test_hessian(call):
    x, *bounds = arguments()

    def squares(x):
        return (CALLS[call](x, *bounds) ** 2).sum()

    expected = torch.autograd.functional.hessian(squares, x.detach())
    again = partial(checkpoint, squares, use_reentrant=False)
    assert_same(torch.autograd.functional.hessian(again, x.detach(), vectorize=True), expected)
