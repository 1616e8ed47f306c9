"""The calls that the audit examines: how to read their operands, and
what decides their gradient."""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from clampgrad import functional
from clampgrad._torch.surroundings import FOR_LISTS, is_batched_gradient

Operands: TypeAlias = tuple[Any, Any, Any]  # input, lower bound or None, upper bound or None

PAIRS = ("maximum", "minimum", "fmax", "fmin")
OTHER_NAMES = {"clamp": "clip", "maximum": "max", "minimum": "min"}


class Operator(NamedTuple):
    """A function of torch or of ours, as the audit reads and repeats it."""

    name: str  # of clampgrad's function that has the same forward
    # From its arguments to the operands; None if it is another function
    # then, as torch.max(x, dim) is.
    read: Callable[..., Operands | None]
    again: Callable[..., Tensor]  # from the operands to the result
    own: bool = False  # a formula of its own, the same in every release and under every pin
    is_ours: bool = False

    @property
    def follows_torch(self) -> bool:
        """Whether the release or a pin decides its gradient."""
        return not (self.own or self.is_ours)


class Call(NamedTuple):
    """Everything but the values that decides how a call differentiates."""

    function: str  # that the program calls
    through: str  # the operator that this calls, if it is another
    operator: Operator
    keywords: tuple[tuple[str, Any], ...]  # gradient and maximize, of our own functions
    tensors: tuple[bool, bool]  # which of the bounds are Tensors
    differentiated: tuple[bool, bool, bool]
    has: tuple[bool, bool]
    of_bounds: int | None  # the bits of a position that the bounds decide, where both are numbers
    dtype: torch.dtype
    device: torch.device
    pin: str | None

    @property
    def gradient(self) -> str:
        """torch's own ("torch"), the pin's, or the one that was asked for."""
        return dict(self.keywords).get("gradient") or self.pin or "torch"


# ---- Reading arguments ---------------------------------------------------------------------------


def _clamp(input: Tensor, min: Any = None, max: Any = None, **_: Any) -> Operands:
    return input, min, max


def _clamp_max(input: Tensor, max: Any, **_: Any) -> Operands:
    return input, None, max


def _lower(input: Tensor, other: Any = None, **_: Any) -> Operands | None:
    return (input, other, None) if isinstance(other, Tensor) else None


def _upper(input: Tensor, other: Any = None, **_: Any) -> Operands | None:
    return (input, None, other) if isinstance(other, Tensor) else None


def _hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, *_: Any, **__: Any
) -> Operands:
    return input, min_val, max_val


READERS: dict[str, Any] = dict(
    clamp=_clamp, clamp_min=_clamp, clamp_max=_clamp_max, maximum=_lower, minimum=_upper
)
READERS |= dict(fmax=_lower, fmin=_upper)


def call(name: str, function: Any, x: Tensor, lo: Any, hi: Any, **keywords: Any) -> Tensor:
    """A function of the clamp family, given both bounds."""
    return (
        function(x, lo, hi, **keywords)
        if name == "clamp"
        else function(x, hi if lo is None else lo, **keywords)
    )


def operators() -> dict[Any, Operator]:
    """Every function that the audit examines."""
    found: dict[Any, Operator] = {}

    def add(spaces: tuple[Any, ...], name: str, operator: Operator) -> None:
        for space, suffix in product(spaces, ("", "_")):
            if hasattr(space, name + suffix):
                found[getattr(space, name + suffix)] = operator

    for name, read in READERS.items():
        for library, spaces in {torch: (torch, Tensor), functional: (functional,)}.items():
            function = getattr(library, name)
            ours = library is functional
            add(spaces, name, Operator(name, read, partial(call, name, function), is_ours=ours))
            other = OTHER_NAMES.get(name)
            if other and hasattr(library, other):
                add(spaces, other, found[function])
    relu = Operator(
        "clamp_min", lambda input, *_, **__: (input, 0, None), lambda x, *_: F.relu(x), True
    )
    add((torch, Tensor, F), "relu", relu)
    add((F,), "relu6", Operator("clamp", lambda input, *_, **__: (input, 0, 6), F.hardtanh, True))
    add((F,), "hardtanh", Operator("clamp", _hardtanh, F.hardtanh, True))
    return found


def _of_list(name: str, x: Tensor, lo: Any, hi: Any) -> Tensor:
    bound = hi if lo is None else lo
    bounds: Any = [bound] if isinstance(bound, Tensor) else bound
    return FOR_LISTS[name]([x], bounds)[0]


# Those whose kernels tell of a call, by their names in aten. maximum and minimum of lists are not
# among them: they have formulas of their own, which no release changed.
KERNELS = {
    name: Operator(name, read, partial(call, name, getattr(torch, name)))
    for name, read in READERS.items()
}
KERNELS |= {
    f"_foreach_{name}": Operator(name, READERS[name], partial(_of_list, name)) for name in FOR_LISTS
}


def is_of_list(name: str) -> bool:
    return name.startswith("_foreach_")


def each_call(name: str, args: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """The arguments of each call that a call of a kernel stands for, where it is one of a list."""
    if not is_of_list(name):
        return [args]
    xs, bounds = args
    return list(zip(xs, bounds if isinstance(bounds, list) else [bounds] * len(xs)))


def named_as(function: str) -> str:
    """The name of clampgrad's out-of-place function for a function in the report."""
    name = function.removeprefix("clampgrad.").removeprefix("_foreach_").rstrip("_")
    return {other: ours for ours, other in OTHER_NAMES.items()}.get(name, name)


# ---- What cannot be looked at --------------------------------------------------------------------


# Of tensors without values, which have no gradient that could be another: a trace is no call.
VALUELESS = "meta tensors"
TRACED = ("FakeTensor", "FunctionalTensor")


def unreadable(values: tuple[Any, ...]) -> str | None:
    """Why the elements of these cannot be counted here, None if they can."""
    for value in values:
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
            return "meta tensors"
    return None
