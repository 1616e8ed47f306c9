"""The fused kernels do what the composed path does: any length, layout, offset, instruction set."""

import os
import subprocess
import sys

import pytest
import torch

import clampgrad
from common import DTYPES, assert_same, eager, vjp
from oracle import EXACT, PSEUDO, TABLE

pytestmark = pytest.mark.compiled(
    "it looks at kernels and nodes that the portable implementation does not have"
)

# Ties, both zeros, what 16 bits cannot hold exactly, and what is no number.
VALUES = torch.tensor(
    [0, -0.0, 1, 1, 2, -3, 0.1, 6, 6e-8, 1e30, torch.inf, -torch.inf, torch.nan],
    dtype=torch.float64,
)
CLAMPS = {"clamp": 3, "clamp_min": 2, "clamp_max": 2}
CALLS = [
    (name, len(operator["arguments"]), convention)
    for name, operator in TABLE["operators"].items()
    for convention in EXACT + PSEUDO * (name in CLAMPS)
]


def drawn(shape, generator, dtype):
    picks = torch.randint(len(VALUES), shape, generator=generator)
    return VALUES[picks].to(dtype)


def laid_out(shape, generator, dtype):
    """A tensor of this shape at an odd offset: its dimensions in any order, some with steps."""

    def some(n):
        return int(torch.randint(n, (), generator=generator))

    order = torch.randperm(len(shape), generator=generator).tolist()
    steps = [1 + some(2) * (some(3) == 0) for _ in shape]
    sizes = [shape[d] * steps[d] for d in order]
    offset = some(5)
    memory = drawn((offset + torch.Size(sizes).numel(),), generator, dtype)
    back = [order.index(d) for d in range(len(shape))]
    whole = memory[offset:].view(sizes).permute(back)
    return whole[tuple(slice(None, None, step) for step in steps)]


def agree(f, args, g):
    for fused, composed in zip(eager(f, args, g), vjp(f, args, g), strict=True):
        assert_same(fused, composed)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name, count, convention", CALLS)
def test_tensors(name, count, convention, dtype):
    generator = torch.Generator().manual_seed(0)

    def f(*args):
        return getattr(clampgrad, name)(*args, gradient=convention)

    for shape in [(0,), (1,), (63,), (64,), (65,), (200,), (3, 5, 7), (2, 3, 4, 5)]:
        args = [laid_out(shape, generator, dtype) for _ in range(count)]
        agree(f, args, laid_out(shape, generator, dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("convention", EXACT + PSEUDO)
@pytest.mark.parametrize("bounds", [(0, 6), (0.1, None), (None, 1), (1, 1), (6, 0)], ids=str)
def test_numbers(bounds, convention, dtype):
    generator = torch.Generator().manual_seed(0)

    def f(x):
        return clampgrad.clamp(x, *bounds, gradient=convention)

    for n in range(0, 200, 7):
        agree(f, [laid_out((n,), generator, dtype)], laid_out((n,), generator, dtype))
    for shape in [(3, 5, 7), (2, 3, 4, 5), (4, 1, 33)]:
        agree(f, [laid_out(shape, generator, dtype)], laid_out(shape, generator, dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name, count, convention", CALLS)
def test_nan_at_every_position(name, count, convention, dtype):
    """Each in turn, in each argument, over two words and a tail."""
    n = 130
    g = torch.ones(n, n, dtype=dtype)
    for which in range(count):
        args = [torch.full((n, n), v, dtype=dtype) for v in (1.0, 1.0, 2.0)[:count]]
        args[which].fill_diagonal_(torch.nan)
        gradients = eager(lambda *a: getattr(clampgrad, name)(*a, gradient=convention), args, g)
        for gradient in gradients:
            assert len(gradient.diagonal().unique()) == 1
            assert len((gradient - torch.diag(gradient.diagonal())).unique()) <= 2


CAPABILITIES = {"DEFAULT": [], "AVX2": ["default"], "AVX512": ["default", "avx2"]}


@pytest.mark.skipif("ATEN_CPU_CAPABILITY" in os.environ, reason="it runs this very file")
@pytest.mark.parametrize("lower", CAPABILITIES.get(torch.backends.cpu.get_cpu_capability(), []))
def test_lower_instruction_sets(lower):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__],
        env={**os.environ, "ATEN_CPU_CAPABILITY": lower},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]
