"""The functions that people call. They check names, leave all other errors to torch, and choose a
rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling
from torch.jit import is_tracing
from torch.overrides import handle_torch_function, has_torch_function

from clampgrad._contract.messages import MESSAGES
from clampgrad._contract.table import CANONICAL, EXACT, ONE_STEP, PSEUDO, unknown_gradient_message
from clampgrad._implementation.portable.composed import compose, is_composed
from clampgrad._implementation.portable.contract import OPERATORS, PSEUDO_GRADIENTS, rows
from clampgrad._implementation.portable.forward import (
    call_torch,
    check_can_hold_result,
    check_in_place,
    round_to_dtype,
)
from clampgrad._implementation.portable.gate import Clamp, Extremum, traced_by_jit
from clampgrad._implementation.traced import call_operator
from clampgrad._torch import tangents
from clampgrad._torch.surroundings import (
    below_a_trace,
    check_levels_allow_writing,
    guard_dynamic_floats,
    in_levels,
    without_dispatch_modes,
)
from clampgrad._torch.torchs_functions import CLAMP_FUNCTIONS, EXTREMA, TORCHS

with without_dispatch_modes():
    for operator in OPERATORS:
        rows(operator)  # now: what is traced later has no values to look up


def resolve_convention(gradient: str, maximize: bool) -> str:
    """Returns the canonical name of a convention, or raises the error."""
    for argument, value, kind in (("gradient", gradient, str), ("maximize", maximize, bool)):
        if not isinstance(value, kind):
            raise TypeError(f"{argument} must be a {kind.__name__}, not {type(value).__name__}")
    name = CANONICAL.get(gradient)
    if name is None:
        raise ValueError(unknown_gradient_message(gradient))
    if maximize and name not in PSEUDO:
        raise ValueError(MESSAGES["kMaximizeDoesNotApply"].format(gradient))
    return name


def column_of(gradient: str, maximize: bool) -> str:
    """Returns the name of a convention in the rows of the contract. One that depends on `maximize`
    has two."""
    directed = f"{gradient}, maximize"
    return directed if maximize and directed in PSEUDO_GRADIENTS["x = y"] else gradient


COLUMNS = {(name, False): convention for name, convention in CANONICAL.items()}
COLUMNS |= {(n, True): column_of(c, True) for n, c in CANONICAL.items() if c in PSEUDO}


def check_gradient(name: str, gradient: str, maximize: bool) -> str:
    """Returns the column of the convention that a caller of the function `name` names, or raises
    the error: extrema have no interval, and so no pseudo-gradient."""
    column = None
    if type(gradient) is str and type(maximize) is bool:
        column = COLUMNS.get((gradient, maximize))
    if column is None:
        column = column_of(resolve_convention(gradient, maximize), maximize)
    if column not in EXACT and not name.startswith("clamp"):
        raise ValueError(MESSAGES["kForClampsOnly"].format(gradient, name))
    return column


def should_record(x: Tensor, *others: Any) -> bool:
    """Whether to record a gradient. True if a level of torch.func may need one: only the levels
    know."""
    tensors = [x, *[other for other in others if isinstance(other, Tensor)]]
    if not isinstance(x, Tensor) or not any([t.is_floating_point() for t in tensors]):
        return False  # torch has no such call, or no backward of it, and says so
    recording = torch.is_grad_enabled() and (in_levels() or any([t.requires_grad for t in tensors]))
    # Forward mode records without grad mode, too.
    if not recording and not tangents.carried_at_a_level(tensors):
        return False
    return not any([isinstance(other, complex) for other in others])  # torch has no backward there


# ---- Clamps -------------------------------------------------------------------------------------


def clamp_with_rule(
    name: str, x: Tensor, lo: Any, hi: Any, gradient: str, in_operator: bool
) -> Tensor:
    """Clamps and records the gradient. At least one bound is not None."""
    suffix = "_" if name.endswith("_") else ""
    if not suffix and is_composed(gradient, lo, hi) and not (in_operator and below_a_trace()):
        v, bounds = x.detach(), (lo, hi) if name == "clamp" else (hi if lo is None else lo,)
        result = compose(x, v, getattr(TORCHS, name)(v, *bounds), lo, hi, gradient)
        if result is not None:
            return result
    if suffix:
        check_in_place(x, lo, hi)
        check_levels_allow_writing(x)
    numbers = [not isinstance(bound, Tensor) for bound in (lo, hi) if bound is not None]
    if len(set(numbers)) == 2:
        if gradient.partition(",")[0] not in ONE_STEP:
            if suffix:
                # If torch refuses the second, it raises before the first has written anything.
                with torch.no_grad():
                    check_can_hold_result(x, (lo, hi), TORCHS.clamp_max(x, hi))
                if torch.result_type(x, lo) != x.dtype:
                    raise RuntimeError(MESSAGES["kRoundsBetweenSteps"].format(x.dtype))
                # The first writes hi too, if it is x.
                hi = hi.clone() if isinstance(hi, Tensor) else hi
            raised = RUN["clamp_min" + suffix](gradient, x, lo, None, None, in_operator)
            return RUN["clamp_max" + suffix](gradient, raised, None, hi, None, in_operator)
        if numbers[0] and not x.is_floating_point():
            # How torch clamps integers by a number beyond their range depends on the release.
            # Integers have no gradient, so the clamp by that number can be done first.
            return clamp_with_rule(name, x, TORCHS.clamp_min(x, lo), hi, gradient, in_operator)
        if numbers[0]:
            lo = round_to_dtype(lo, x.dtype)  # in which the first of the two compares
    return Clamp.of(name, operator_of(lo, hi), gradient, x, lo, hi)


def operator_of(lo: Any, hi: Any) -> str:
    """Returns the operator of the contract for a clamp between these bounds."""
    return "clamp_min" if hi is None else "clamp_max" if lo is None else "clamp"


NUMBERS = {int, float, type(None)}  # a missing bound is none


def make_clamp(name: str) -> Callable[..., Tensor]:
    """Returns the function that clamps, or calls torch's."""
    torch_function, one_bound = getattr(TORCHS, name), name.startswith("clamp_m")

    def run(
        gradient: str, x: Tensor, lo: Any, hi: Any, out: Tensor | None, in_operator: bool = False
    ) -> Tensor:
        if type(lo) in NUMBERS and type(hi) in NUMBERS and isinstance(x, Tensor) and out is None:
            recording = x.requires_grad and torch.is_grad_enabled()
            if recording and (lo is not None or hi is not None):
                return clamp_with_rule(name, x, lo, hi, gradient, in_operator)
            if not recording and not tangents.may_exist():
                return (
                    torch_function(x, hi if lo is None else lo)
                    if one_bound
                    else torch_function(x, lo, hi)
                )
        lo, hi = guard_dynamic_floats(lo), guard_dynamic_floats(hi)
        if out is not None:
            return call_torch(name, x, lo, hi, out=out)
        if not should_record(x, lo, hi) or (lo is None and hi is None):
            return call_torch(name, x, lo, hi)
        return clamp_with_rule(name, x, lo, hi, gradient, in_operator)

    return run


# ---- Extrema ------------------------------------------------------------------------------------


def make_extremum(name: str) -> Callable[..., Tensor]:
    def run(gradient: str, x: Tensor, y: Tensor, out: Tensor | None) -> Tensor:
        if out is not None:
            return call_torch(name, x, y, out=out)
        if not isinstance(y, Tensor) or not should_record(x, y):
            return call_torch(name, x, y)
        return Extremum.of(name, name, gradient, x, y)

    return run


RUN = {f: make_clamp(f) for f in CLAMP_FUNCTIONS} | {f: make_extremum(f) for f in EXTREMA}


# ---- The operators, and the functions of _C.pyi --------------------------------------------------


def make_kernel(name: str) -> Callable[..., Tensor]:
    """Returns the kernel of an operator, for all its overloads."""
    run = RUN[name]

    def clamp_kernel(
        input: Tensor,
        min: Any = None,
        max: Any = None,
        *,
        gradient: str = "min_norm",
        maximize: bool = False,
        out: Tensor | None = None,
    ) -> Tensor:
        return run(check_gradient(name, gradient, maximize), input, min, max, out, in_operator=True)

    def clamp_max_kernel(input: Tensor, max: Any, **keywords: Any) -> Tensor:
        return clamp_kernel(input, None, max, **keywords)

    def extremum_kernel(
        input: Tensor, other: Tensor, *, gradient: str = "min_norm", out: Tensor | None = None
    ) -> Tensor:
        return run(check_gradient(name, gradient, False), input, other, out)

    if name in EXTREMA:
        return extremum_kernel
    return clamp_max_kernel if name.startswith("clamp_max") else clamp_kernel


# The functions that people call, by name: clampgrad.functional puts them here.
PUBLIC: dict[str, Callable[..., Tensor]] = {}


def make_function(name: str) -> Callable[..., Tensor]:
    """Returns a function that people call. Subclasses and modes see the public function, and
    tracers the operator."""
    run = RUN[name]
    none_before = (None,) if name.startswith("clamp_max") else ()
    none_after = (None,) if name.startswith("clamp_min") else ()

    def call(
        x: Tensor,
        *others: Any,
        gradient: str,
        maximize: bool = False,
        out: Tensor | None = None,
    ) -> Tensor:
        column = check_gradient(name, gradient, maximize)  # first of all errors
        if is_compiling() or is_tracing() or has_torch_function((x, *others, out)):
            keywords = {"gradient": gradient, "maximize": maximize or None, "out": out}
            return call_for_tracer_or_subclass(
                x, *others, **{k: v for k, v in keywords.items() if v is not None}
            )
        return run(column, x, *none_before, *others, *none_after, out)

    def call_for_tracer_or_subclass(*operands: Any, **keywords: Any) -> Tensor:
        relevant = [a for a in (*operands, keywords.get("out")) if a is not None]
        if has_torch_function(relevant):
            return handle_torch_function(PUBLIC[name], relevant, *operands, **keywords)
        if is_compiling():
            return call_operator(name, *operands, **keywords)
        with traced_by_jit(not name.endswith("_")):  # which overwrites its argument
            return call_operator(name, *operands, **keywords)

    return call


FUNCTIONS = {name: make_function(name) for name in RUN}
