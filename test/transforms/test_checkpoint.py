"""A checkpoint that is not reentrant runs its function again in backward, whatever surrounds the two."""

from contextlib import nullcontext
from itertools import product

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from common import CALLS, Dispatched, assert_same


class Unseeing(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


MODES = {"no mode": nullcontext, "a mode": Unseeing}


def arguments():
    values = [[-1.0, 0, 1, 0.5, 2], [0.0, 0, 0, 0.5, 1], [1.0, 1, 1, 0.5, 0]]
    return [torch.tensor(v, requires_grad=True) for v in values]


def gradients(y, args, **keywords):
    found = torch.autograd.grad(y, args, allow_unused=True, **keywords)
    return [torch.zeros(()) if g is None else g for g in found]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("forward, backward, batched", [*product(MODES, MODES, (False, True))])
def test_what_is_saved_depends_on_the_tensors_alone(call, forward, backward, batched):
    args, f = arguments(), CALLS[call]
    g = torch.eye(5) if batched else torch.arange(1.0, 6)
    expected = gradients(f(*args), args, grad_outputs=g, is_grads_batched=batched)
    with MODES[forward]():
        y = checkpoint(f, *args, use_reentrant=False)
    with MODES[backward]():
        found = gradients(y, args, grad_outputs=g, is_grads_batched=batched)
    assert_same(y, f(*args))
    for actual, wanted in zip(found, expected):
        assert_same(actual, wanted)


@pytest.mark.parametrize("call", CALLS)
def test_jacobian_and_hessian(call):
    x, *bounds = arguments()
    f = CALLS[call]

    def again(x):
        return checkpoint(lambda x: f(x, *bounds), x, use_reentrant=False)

    found = torch.autograd.functional.jacobian(again, x, vectorize=True)
    assert_same(found, torch.autograd.functional.jacobian(lambda x: f(x, *bounds), x))
    x = x.detach()
    found = torch.autograd.functional.hessian(lambda x: (again(x) ** 2).sum(), x, vectorize=True)
    assert_same(found, torch.autograd.functional.hessian(lambda x: (f(x, *bounds) ** 2).sum(), x))


@pytest.mark.compiled("the portable implementation's operators are torch's own")
@pytest.mark.parametrize("call", CALLS)
def test_a_mode_sees_the_operators_of_aten(call):
    seen = []
    with Dispatched(seen.append):
        CALLS[call](*arguments())
    assert any("aten.clamp" in str(f) or "aten.maximum" in str(f) for f in seen)
    assert {f.namespace for f in seen} == {"aten"}
