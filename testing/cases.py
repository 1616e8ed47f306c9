"""Which cases of a test run: by the implementation, the device under test, and the time."""

import random

import pytest
import torch

import clampgrad

INDUCTOR = pytest.mark.of_kernels("Inductor compiles for no mock device")


def has_kernels():
    """Whether the device under test has kernels of ours; compositions run on any other."""
    return torch.get_default_device().type in ("cpu", "cuda")


def slow_after(count, cases):
    """Cases for parametrize: `.ci/run` has time for the first `count`, `nox -t release` for all."""
    cases = [*cases]
    slow = (pytest.param(case, marks=pytest.mark.slow) for case in cases[count:])
    return [*cases[:count], *slow]


def sample_if_portable(count, cases):
    """Cases for parametrize, each of several arguments. On the portable implementation many run the
    same lines of Python: there `count` of them, drawn by chance, run, and the rest are slow."""
    cases = [*cases]
    if clampgrad.implementation == "compiled":
        return cases
    chosen = {*random.Random(0).sample(range(len(cases)), count)}
    return [
        pytest.param(*case, marks=[] if i in chosen else pytest.mark.slow)
        for i, case in enumerate(cases)
    ]
