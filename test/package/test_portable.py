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
            result = call()  # a node in Python has a name as long as its result is there
            is_composed = result.grad_fn.name() == "WhereBackward0"
            assert is_composed == (convention in ("min_norm", "inclusive", "joint")), convention
        assert saved_bytes(lambda: x.clone().clamp_max_(1)) == 1000
"""


def test_what_is_saved_between_numbers():
    """A byte per element, composed or not."""
    portable("-c", SAVED)


REFUSED_AND_UNCHANGED = """
import torch
import clampgrad


class InPlaceOnly(torch.Tensor):
    @staticmethod
    def __new__(cls, values):
        tensor = torch.Tensor._make_wrapper_subclass(cls, values.shape, dtype=values.dtype)
        tensor.values = values
        return tensor

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        values, name = args[0].values, func._schema.name.partition("::")[2]
        if name in ("alias", "clone", "detach"):
            return cls(func(values))
        if name == "clamp_":
            func(values, *args[1:])
            return args[0]
        raise NotImplementedError(f"InPlaceOnly has no {name}")


bound = torch.zeros((), requires_grad=True)
for clamp_ in (torch.clamp_, clampgrad.clamp_):
    with clampgrad.pin("half"):
        x = InPlaceOnly(torch.tensor([-1.0, 2.0]))
        try:
            clamp_(x, bound)
            raise AssertionError("not refused")
        except NotImplementedError as error:
            assert str(error) == "InPlaceOnly has no clamp", error
        assert x.values.tolist() == [-1, 2]
"""


def test_a_call_that_is_refused_writes_nothing():
    """Also where a subclass has the operator in place alone, so that torch would write."""
    portable("-c", REFUSED_AND_UNCHANGED)
