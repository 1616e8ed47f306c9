"""The calls that an audit examines: how to read their operands, and what decides their gradient."""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from clampgrad import functional
from clampgrad._torch.surroundings import function_of_lists, is_batched_gradient

Operands: TypeAlias = tuple[Any, Any, Any]  # input, lower bound or None, upper bound or None

OTHER_NAMES = {"clamp": "clip", "maximum": "max", "minimum": "min"}


class Operator(NamedTuple):
    """How the audit reads a call of a function of torch or of ours, and calls it again."""

    name: str  # of clampgrad's function that has the same forward
    # From its arguments to the operands; None if with these it is another function, as
    # torch.max(x, dim) is.
    read: Callable[..., Operands | None]
    rerun: Callable[..., Tensor]  # from the operands to the result
    has_own_formula: bool = False  # the same in every release and under every pin
    is_ours: bool = False

    @property
    def follows_torch(self) -> bool:
        """Whether the release or a pin decides its gradient."""
        return not (self.has_own_formula or self.is_ours)


class Call(NamedTuple):
    """Everything but the values that decides how a call differentiates."""

    function: str  # that the program calls
    through: str  # the operator that this calls, if it is another
    operator: Operator
    keywords: tuple[tuple[str, Any], ...]  # gradient and maximize, of our own functions
    are_tensors: tuple[bool, bool]  # which of the bounds are Tensors
    differentiated: tuple[bool, bool, bool]
    has_bound: tuple[bool, bool]  # a lower one, an upper one
    bound_bits: int | None  # the bits of a position that the bounds decide, where both are numbers
    dtype: torch.dtype
    device: torch.device
    pin: str | None

    @property
    def gradient(self) -> str:
        """torch's own ("torch"), the pin's, or the one that was asked for."""
        return dict(self.keywords).get("gradient") or self.pin or "torch"


# ---- Reading arguments ---------------------------------------------------------------------------


def _read_clamp(input: Tensor, min: Any = None, max: Any = None, **_: Any) -> Operands:
    return input, min, max


def _read_clamp_max(input: Tensor, max: Any, **_: Any) -> Operands:
    return input, None, max


def _read_lower_bound(input: Tensor, other: Any = None, **_: Any) -> Operands | None:
    return (input, other, None) if isinstance(other, Tensor) else None


def _read_upper_bound(input: Tensor, other: Any = None, **_: Any) -> Operands | None:
    return (input, None, other) if isinstance(other, Tensor) else None


def _read_hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, *_: Any, **__: Any
) -> Operands:
    return input, min_val, max_val


# By the names of the operators without their in-place forms.
READERS: dict[str, Any] = dict(
    clamp=_read_clamp,
    clamp_min=_read_clamp,
    clamp_max=_read_clamp_max,
    maximum=_read_lower_bound,
    minimum=_read_upper_bound,
    fmax=_read_lower_bound,
    fmin=_read_upper_bound,
)


def call_with_bounds(
    name: str, function: Any, x: Tensor, lo: Any, hi: Any, **keywords: Any
) -> Tensor:
    """Calls a function of the clamp family with the bounds that it has."""
    return (
        function(x, lo, hi, **keywords)
        if name == "clamp"
        else function(x, hi if lo is None else lo, **keywords)
    )


def operators_by_function() -> dict[Any, Operator]:
    """Returns the functions that the audit examines, and how to read each."""
    operators: dict[Any, Operator] = {}

    def add(spaces: tuple[Any, ...], name: str, operator: Operator) -> None:
        for space, suffix in product(spaces, ("", "_")):
            if hasattr(space, name + suffix):
                operators[getattr(space, name + suffix)] = operator

    for name, read in READERS.items():
        for library, spaces in {torch: (torch, Tensor), functional: (functional,)}.items():
            function = getattr(library, name)
            rerun, is_ours = partial(call_with_bounds, name, function), library is functional
            add(spaces, name, Operator(name, read, rerun, is_ours=is_ours))
            other = OTHER_NAMES.get(name)
            if other and hasattr(library, other):
                add(spaces, other, operators[function])
    relu = Operator(
        "clamp_min", lambda input, *_, **__: (input, 0, None), lambda x, *_: F.relu(x), True
    )
    add((torch, Tensor, F), "relu", relu)
    add((F,), "relu6", Operator("clamp", lambda input, *_, **__: (input, 0, 6), F.hardtanh, True))
    add((F,), "hardtanh", Operator("clamp", _read_hardtanh, F.hardtanh, True))
    return operators


def _call_list_operator(name: str, x: Tensor, lo: Any, hi: Any) -> Tensor:
    bound = hi if lo is None else lo
    bounds: Any = [bound] if isinstance(bound, Tensor) else bound
    (result,) = function_of_lists(name)([x], bounds)
    return result


# Those whose kernels announce a call, by their names in aten. maximum and minimum of lists are not
# among them: they have formulas of their own, which no release changed.
KERNEL_OPERATORS = {
    name: Operator(name, read, partial(call_with_bounds, name, getattr(torch, name)))
    for name, read in READERS.items()
}
KERNEL_OPERATORS |= {
    f"_foreach_{name}": Operator(name, READERS[name], partial(_call_list_operator, name))
    for name in ("clamp_min", "clamp_max")
}


def is_of_list(name: str) -> bool:
    return name.startswith("_foreach_")


def split_list_call(name: str, args: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Returns the arguments of one call for each Tensor of a list, or of the call itself."""
    if not is_of_list(name):
        return [args]
    xs, bounds = args
    return list(zip(xs, bounds if isinstance(bounds, list) else [bounds] * len(xs)))


def out_of_place_name(function: str) -> str:
    """Returns the name of clampgrad's out-of-place function for a function in the report."""
    name = function.removeprefix("clampgrad.").removeprefix("_foreach_").rstrip("_")
    return {other: ours for ours, other in OTHER_NAMES.items()}.get(name, name)


# ---- What cannot be looked at --------------------------------------------------------------------


# Tensors without values, whose gradient has none either; and those of a trace, which is no call.
VALUELESS = "meta tensors"
TRACED = ("FakeTensor", "FunctionalTensor")
SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)  # to read one would fix its value


def find_read_problem(values: tuple[Any, ...]) -> str | None:
    """Returns why the elements of these cannot be counted, or None if they can."""
    for value in values:
        if isinstance(value, SYMBOLS):
            return "symbolic bounds"
        if not isinstance(value, Tensor):
            continue
        if type(value).__torch_dispatch__ is not Tensor.__torch_dispatch__:
            return type(value).__name__
        if is_batched_gradient(value):
            return "batched gradients"
        if value.is_nested:
            return "nested tensors"
        if value.layout is not torch.strided:
            return f"{str(value.layout).removeprefix('torch.').removeprefix('_')} tensors"
        if value.is_meta:
            return VALUELESS
    return None
