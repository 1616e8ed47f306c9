"""The portable implementation, whatever was compiled: the rest of the tests run on it too."""

from functools import partial
from pathlib import Path

from common import python

portable = partial(python, cwd=Path(__file__).parents[2], CLAMPGRAD_PORTABLE="1")

PROGRAM = """
import warnings

import torch

import clampgrad

assert clampgrad.implementation == "portable"
x = torch.tensor([0.0, 3.0, 6.0, 7.0], requires_grad=True)
other = torch.full((4,), 3.0)


def slope(f):
    return torch.autograd.grad(f(x).sum(), x)[0].tolist()


CLAMPS = [  # other spellings: test_pin_calls.py
    lambda x: torch.clamp(x, max=6, min=0),
    lambda x: x.clone().clamp_(0, 6),
    lambda x: x.clamp_min(0).clamp_max(6),
    lambda x: torch.ops.aten.clamp.default(x, 0, 6),
    lambda x: torch.clamp(a=x, min=0, max=6),
    torch.func.vmap(lambda x: x.clamp(0, 6)),
]
PAIRS = [
    lambda x: torch.maximum(x, other),
    lambda x: torch.maximum(x1=x, x2=other),
]
EXPECTED = {
    "min_norm": ([0, 1, 0, 0], [0, 0, 1, 1]),
    "inclusive": ([1, 1, 1, 0], [0, 0.5, 1, 1]),
    "half": ([0.5, 1, 0.5, 0], [0, 0.5, 1, 1]),
    "straight_through": ([1, 1, 1, 1], slope(PAIRS[0])),  # of clamps alone
}
before = [*map(slope, CLAMPS + PAIRS)]
ours = slope(lambda x: clampgrad.clamp(x, 0, 6))
for convention, (clamped, greater) in EXPECTED.items():
    with clampgrad.pin(convention):
        assert clampgrad.pin.current() == convention
        expected = [clamped] * len(CLAMPS) + [greater] * len(PAIRS)
        assert [*map(slope, CLAMPS + PAIRS)] == expected, convention
        assert slope(lambda x: clampgrad.clamp(x, 0, 6)) == ours
        assert slope(lambda x: torch.ops.clampgrad.clamp(x, 0, 6)) == ours
        assert x.max() == 7 and x.max(0).indices == 3
        with clampgrad.pin(None):
            assert slope(CLAMPS[0]) == before[0]
assert [*map(slope, CLAMPS + PAIRS)] == before
assert clampgrad.pin.current() is None
print("done")
"""


def test_the_pin():
    assert portable("-c", PROGRAM) == "done\n"


def test_it_can_be_imported_where_tensors_have_no_values():
    fake = "from torch._subclasses import FakeTensorMode\nwith FakeTensorMode(): "
    portable("-c", f"{fake}import clampgrad")
