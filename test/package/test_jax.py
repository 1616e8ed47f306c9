"""half is jax.numpy.clip, measured: `nox -s jax` runs this beside a Python that has JAX."""

import os
import runpy
from functools import partial
from pathlib import Path

import numpy
import pytest
import torch

import clampgrad
from testing.comparing import assert_same, eager, random_with_ties
from testing.processes import run_checked

JAX_PYTHON = os.environ.get("CLAMPGRAD_JAX_PYTHON")
SCRIPT = str(Path(__file__).with_name("jax_clip.py"))
INF = torch.inf
NAN = torch.nan
# lo < hi, equal, the wrong way round, infinite, NaN.
NUMBERS = [(0.0, 1.0), (1.0, 1.0), (1.0, 0.0), (-INF, 0.5), (0.0, INF), (NAN, 1.0), (0.0, NAN)]
HALF = partial(clampgrad.clip, gradient="half")
CALLS = {name: call for name, *call in runpy.run_path(SCRIPT)["calls"](HALF, NUMBERS)}

pytestmark = [
    pytest.mark.jax,
    pytest.mark.skipif(not JAX_PYTHON, reason="CLAMPGRAD_JAX_PYTHON names no Python with JAX"),
]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Arrays full of ties, and what JAX makes of them. JAX multiplies by 0: g is finite."""
    given, found = (tmp_path_factory.mktemp("jax") / name for name in ("given.npz", "found.npz"))
    arrays = {name: random_with_ties(5000, seed=i) for i, name in enumerate(("x", "lo", "hi"))}
    arrays["g"] = torch.randn(5000, generator=torch.Generator().manual_seed(3))
    numpy.savez(given, numbers=numpy.array(NUMBERS), **arrays)
    env = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": ""}
    run_checked(JAX_PYTHON, SCRIPT, given, found, env=env)
    return arrays, numpy.load(found)


@pytest.mark.parametrize("name", CALLS)
def test_the_value_and_every_gradient(measured, name):
    """To the bit but for the sign of zero, NaN included."""
    (arrays, theirs), (f, names) = measured, CALLS[name]
    args = [arrays[n] for n in names]
    for i, ours in enumerate((f(*args), *eager(f, args, arrays["g"]))):
        assert_same(ours, torch.from_numpy(theirs[f"{name}, {i}"]), (name, i))
