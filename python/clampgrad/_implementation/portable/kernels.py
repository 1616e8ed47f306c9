"""The kernels of the pin: they replace those at the autograd keys of aten's clamp and its family,
as csrc/pin/kernels.cpp does in C++.

They run wherever torch's own would: whoever calls, in any thread, at every level of
torch.func, in a trace. For a call that is not pinned, or not recorded, they redispatch to
torch's own kernel, which stays at a key that no backend has.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from clampgrad._contract.messages import MESSAGES
from clampgrad._contract.table import PSEUDO
from clampgrad._implementation.portable.composed import compose, is_composed
from clampgrad._implementation.portable.forward import check_in_place, is_mutated_graph_input
from clampgrad._implementation.portable.front_doors import (
    column_of,
    operator_of,
)
from clampgrad._implementation.portable.gate import CallSpec, Clamp, are_numbers, locate_elements
from clampgrad._implementation.portable.pin_state import pin_current
from clampgrad._torch import tangents
from clampgrad._torch.dispatcher import (
    Kernel,
    OneLevel,
    below_autograd,
    make_inplace_batch_rule,
    next_level,
    operator_named,
    register_at_autograd_keys,
    torch_kernel_keys,
)
from clampgrad._torch.surroundings import below_a_trace, guard_dynamic_floats, in_autodiff
from clampgrad._torch.torchs_functions import CLAMP_FUNCTIONS, EXTREMA

# Not `observer`, which is rebound: a copy of it would stay what it was.
__all__ = ["pin_call_counts", "pin_observe", "pin_register_kernels"]

# ---- The node of a call -------------------------------------------------------------------------


@dataclass(eq=False)
class PinnedCallSpec(CallSpec):
    """A call of torch's own operator, with the gradient that is pinned."""

    below: Callable[..., Tensor]  # the operator, below autograd
    is_recording: bool  # grad mode of the caller; an autograd function turns it off

    def forward(self, *args: Any) -> Tensor:
        if self.in_place and is_mutated_graph_input(args[0]):  # the result is computed from a copy
            return super().forward(*args)
        present = {"clamp_min": args[:2], "clamp_max": args[::2]}.get(self.name.rstrip("_"), args)
        with next_level(self.is_recording):
            return self.below(*present)


class PinnedNode(OneLevel):
    """The node of a call. Its forward runs below autograd, which is the next level."""

    forward = staticmethod(Clamp.forward)
    setup_context = staticmethod(Clamp.setup_context)
    backward = staticmethod(Clamp.backward)
    jvp = staticmethod(Clamp.jvp)


# ---- The kernels --------------------------------------------------------------------------------

pinned_calls: Counter[str] = Counter()
library: torch.library.Library


def pin_call_counts() -> dict[str, int]:
    return dict(pinned_calls)


def pinned_column(is_clamp: bool) -> str | None:
    """Returns the convention that is pinned for a clamp or an extremum, as rows of the contract
    name it, or None."""
    name = pin_current()
    return None if name is None else column_of_pin(name, is_clamp)


@cache
def column_of_pin(name: str, is_clamp: bool) -> str | None:
    gradient, _, maximize = name.partition(", ")
    return column_of(gradient, bool(maximize)) if is_clamp or gradient not in PSEUDO else None


def any_differentiated(args: Sequence[Any]) -> bool:
    """Whether one of the arguments is a differentiated Tensor of a dtype and layout that torch
    clamps."""
    if torch.is_grad_enabled():
        for a in args:
            if isinstance(a, Tensor) and a.requires_grad and is_clampable(a):
                return True
    if not tangents.may_exist():
        return False
    return tangents.carried([a for a in args if isinstance(a, Tensor) and is_clampable(a)])


def is_clampable(x: Tensor) -> bool:
    """Whether torch's clamps accept the tensor, and record its gradient."""
    is_float = x.is_floating_point() and x.element_size() > 1
    return is_float and x.layout in (torch.strided, torch.jagged)


def should_record(x: Tensor, others: Sequence[Any], in_place: bool) -> bool:
    """Whether we record the call. False for arguments that torch refuses, so that torch's operator
    runs and raises its own error."""
    if not any_differentiated((x, *others)):
        if torch.is_grad_enabled() and in_autodiff():
            raise RuntimeError(MESSAGES["kTorchScriptDifferentiates"])
        return False
    if all(other is None for other in others) or any(isinstance(o, complex) for o in others):
        return False
    if in_place and x.is_floating_point():
        check_in_place(x, *others)
    return not in_place or x.is_floating_point()


def kernel(name: str, operator: Any) -> Kernel:
    """Returns the kernel that replaces torch's own kernel of an operator."""
    out_of_place, is_clamp = name.rstrip("_"), name.startswith("clamp")
    in_place = name.endswith("_")
    counted = f"aten::{out_of_place}"

    def bounds(present: tuple[Any, ...]) -> tuple[Any, Any]:
        return (None, *present) if out_of_place == "clamp_max" else (*present, None, None)[:2]

    def call(keys: Any, x: Tensor, *others: Any) -> Tensor:
        gradient = pinned_column(is_clamp)
        if gradient is None:
            return operator.redispatch(torch_kernel_keys(keys), x, *others)
        if is_clamp and not in_place and x.requires_grad and torch.is_grad_enabled():
            lo, hi = bounds(others)
            if is_composed(gradient, lo, hi) and not below_a_trace():
                v = x.detach()
                y = operator.redispatch(torch_kernel_keys(keys), v, *others)  # or its error
                result = compose(x, v, y, lo, hi, gradient)
                if result is not None:
                    pinned_calls[counted] += 1
                    return result
        if not should_record(x, others, in_place):
            return operator.redispatch(torch_kernel_keys(keys), x, *others)
        pinned_calls[counted] += 1
        others = tuple(map(guard_dynamic_floats, others))
        contract_operator = out_of_place
        if is_clamp:
            others = bounds(others)
            contract_operator = operator_of(*others)
        is_recording = torch.is_grad_enabled()
        with next_level(False):
            dtype, args, comparison_code = locate_elements(name, gradient, (x, *others))
        redispatch_below = partial(operator.redispatch, below_autograd(keys))
        spec = PinnedCallSpec(
            name,
            contract_operator,
            gradient,
            are_numbers(others),
            dtype,
            redispatch_below,
            is_recording,
        )
        return PinnedNode.call(spec, is_recording, *args, comparison_code)

    return call


def kernel_for_lists(name: str, operator: Any) -> Kernel:
    """Returns a kernel that raises an error where a gradient of a list of tensors is recorded: no
    pin reaches lists."""

    def call(keys: Any, *args: Any) -> Any:
        elements = [a for arg in args for a in (arg if isinstance(arg, (list, tuple)) else [arg])]
        if pinned_column("clamp" in name) and any_differentiated(elements):
            raise RuntimeError(MESSAGES["kNoPinForLists"].format(f"aten::{name}"))
        return operator.redispatch(torch_kernel_keys(keys), *args)

    return call


# ---- Observed calls: see _C.pyi -----------------------------------------------------------------

observer: Callable[[str, tuple[Any, ...]], Callable[[Any], None] | None] | None = None
_observing = threading.local()  # whether the call that runs is observed


def pin_observe(function: Any, /) -> None:
    global observer
    observer = function


def wrap_for_observer(name: str, kernel: Kernel) -> Kernel:
    """Returns the kernel with the observer around it."""

    def call(keys: Any, *args: Any) -> Any:
        observe = observer
        if observe is None or getattr(_observing, "on", False):
            return kernel(keys, *args)
        observe_result = observe(name, args)
        if observe_result is None:
            return kernel(keys, *args)
        _observing.on = True
        try:
            result = kernel(keys, *args)
        finally:
            _observing.on = False
        observe_result(result)
        return result

    return call


# ---- Registration -------------------------------------------------------------------------------

OVERLOADS = [f + overload for f in CLAMP_FUNCTIONS for overload in ("", ".Tensor")] + [*EXTREMA]
LISTS = [
    f"_foreach_{name}{in_place}.{overload}"
    for name in ("clamp_min", "clamp_max", "maximum", "minimum")
    for in_place in ("", "_")
    for overload in ("Scalar", "List", "ScalarList")
]


@cache
def pin_register_kernels() -> list[str]:
    """Registers the kernels at the first call. They stay, and each call looks up the pin."""
    global library
    kernels = {}
    for name in (*OVERLOADS, *LISTS):
        make = kernel_for_lists if name in LISTS else kernel
        packet = name.partition(".")[0]
        kernels[name] = wrap_for_observer(f"aten::{packet}", make(packet, operator_named(name)))
    library = register_at_autograd_keys(kernels, MESSAGES["kOwnAutogradKernel"])
    for name in ("clamp_", "clamp_.Tensor"):
        rule = make_inplace_batch_rule(operator_named(name), lambda: pin_current() is not None)
        library.impl(name, rule, "FuncTorchBatched")
    return [f"aten::{name}" for name in kernels]
