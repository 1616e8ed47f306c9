"""Under the installed release's convention, what a learned bound gets is the release's own gradient
to the bit, its sum over what it is broadcast to included. Not for fmax and fmin: torch's gradients
there may lie otherwise, and are summed in another order."""

import pytest
import torch

import clampgrad
from testing.comparing import random_with_ties
from testing.releases import OF_NO_CONVENTION, RELEASED

SHAPES = [(), (16, 1, 1), (28,), (8, 1, 1, 1), (8, 1, 28, 1)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_the_sum_is_torchs_own(shape, memory_format, dtype):
    generator = torch.Generator().manual_seed(0)
    x, g = (
        torch.randn(8, 16, 28, 28, generator=generator, device="cpu")
        .to(dtype)
        .contiguous(memory_format=memory_format)
        for _ in range(2)
    )
    x, g = x.to(torch.get_default_device()), g.to(torch.get_default_device())
    lo, hi = (torch.full(shape, bound, dtype=dtype) for bound in (-1.0, 1.0))
    x[0] = random_with_ties(16, 28, 28, dtype=dtype, nan=not OF_NO_CONVENTION)
    x, lo, hi = (t.requires_grad_() for t in (x, lo, hi))
    for function, inputs in (
        (torch.clamp, (x, lo, hi)),
        (torch.clamp_min, (x, lo)),
        (torch.maximum, (x, lo)),
        (torch.minimum, (hi, x)),
    ):
        expected = torch.autograd.grad(function(*inputs), inputs, g)
        with clampgrad.pin(RELEASED):
            actual = torch.autograd.grad(function(*inputs), inputs, g)
        for one, other in zip(actual, expected):
            assert torch.equal(one, other), function
