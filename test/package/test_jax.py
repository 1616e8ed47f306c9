"""half is jax.numpy.clip, measured: `make check-jax` runs this beside a Python that has JAX."""

import os
from pathlib import Path

import numpy
import pytest
import torch

import clampgrad
from common import assert_same, checked, eager, tied

JAX_PYTHON = os.environ.get("CLAMPGRAD_JAX_PYTHON")
# lo < hi, equal, the wrong way round, infinite, NaN.
NUMBERS = [
    (0, 1),
    (1, 1),
    (1, 0),
    (-torch.inf, 0.5),
    (0, torch.inf),
    (torch.nan, 1),
    (0, torch.nan),
]

pytestmark = [
    pytest.mark.jax,
    pytest.mark.skipif(not JAX_PYTHON, reason="CLAMPGRAD_JAX_PYTHON names no Python with JAX"),
]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Arrays full of ties, and what JAX makes of them. JAX multiplies by 0: g is finite."""
    folder = tmp_path_factory.mktemp("jax")
    arrays = {name: tied(5000, seed=i) for i, name in enumerate(("x", "lo", "hi"))}
    arrays["g"] = torch.randn(5000, generator=torch.Generator().manual_seed(3))
    numpy.savez(folder / "arrays.npz", numbers=numpy.array(NUMBERS, dtype="f"), **arrays)
    script, env = (
        Path(__file__).with_name("jax_clip.py"),
        {"JAX_PLATFORMS": "cpu", "PYTHONPATH": ""},
    )
    files = [folder / "arrays.npz", folder / "gradients.npz"]
    checked(JAX_PYTHON, script, *files, env=os.environ | env)
    gradients = numpy.load(files[1])
    return arrays, {name: torch.from_numpy(gradients[name]) for name in gradients}


def compare(measured, name, f, *arguments):
    """The value and every gradient, to the bit but for the sign of zero, NaN included."""
    arrays, theirs = measured
    args = [arrays[argument] for argument in arguments]
    assert_same(f(*args), theirs[f"{name} 0"], name)
    for i, gradient in enumerate(eager(f, args, arrays["g"])):
        assert_same(gradient, theirs[f"{name} {i + 1}"], f"{name}: {arguments[i]}")


def half(x, lo=None, hi=None):
    return clampgrad.clamp(x, lo, hi, gradient="half")


def test_tensors(measured):
    compare(measured, "tensors", half, "x", "lo", "hi")
    compare(measured, "min tensor", half, "x", "lo")
    compare(measured, "max tensor", lambda x, hi: half(x, None, hi), "x", "hi")


@pytest.mark.parametrize("i", range(len(NUMBERS)), ids=lambda i: str(NUMBERS[i]))
def test_numbers(measured, i):
    lo, hi = NUMBERS[i]
    compare(measured, f"numbers {i}", lambda x: half(x, lo, hi), "x")
    compare(measured, f"number and tensor {i}", lambda x, t: half(x, lo, t), "x", "hi")
    compare(measured, f"tensor and number {i}", lambda x, t: half(x, t, hi), "x", "lo")
    compare(measured, f"min number {i}", lambda x: clampgrad.clamp_min(x, lo, gradient="half"), "x")
    compare(measured, f"max number {i}", lambda x: clampgrad.clamp_max(x, hi, gradient="half"), "x")
