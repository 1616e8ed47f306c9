"""The portable implementation, whatever was compiled. `nox -s portable` runs other tests on it."""

from functools import partial
from pathlib import Path

from testing.processes import python

portable = partial(python, cwd=Path(__file__).parents[2], CLAMPGRAD_PORTABLE="1")


def test_it_can_be_imported_where_tensors_have_no_values():
    fake = "from torch._subclasses import FakeTensorMode\nwith FakeTensorMode(): "
    portable("-c", f"{fake}import clampgrad")


SAVED = """
import torch
import clampgrad
from benchmarks.memory import saved_bytes

x = torch.randn(1000, requires_grad=True)
for convention in clampgrad.CONVENTIONS:
    with clampgrad.pin(convention):
        for call in (
            lambda: clampgrad.clamp(x, -1, 1, gradient=convention),
            lambda: torch.clamp(x, -1, 1),
            lambda: torch.clamp_min(x, -1),
        ):
            assert saved_bytes(call) == 1000, convention
            is_composed = call().grad_fn.name() == "WhereBackward0"
            assert is_composed == (convention in ("min_norm", "inclusive", "joint")), convention
        assert saved_bytes(lambda: x.clone().clamp_max_(1)) == 1000
"""


def test_what_is_saved_between_numbers():
    """A byte per element, composed or not."""
    portable("-c", SAVED)
