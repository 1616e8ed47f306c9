"""The functions that people call: they check names, leave all other errors to
torch, and choose one rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling
from torch.overrides import handle_torch_function, has_torch_function

from clampgrad._contract.table import AT_ONCE, CANONICAL, PSEUDO, unknown
from clampgrad._implementation.portable.composed import composed, composed_in_place, is_composed
from clampgrad._implementation.portable.contract import OPERATORS, PSEUDO_GRADIENTS, rows
from clampgrad._implementation.portable.forward import (
    CLAMPS,
    EXTREMA,
    TORCHS,
    check_fits,
    check_in_place,
    in_dtype,
    torchs_own,
)
from clampgrad._implementation.portable.gate import Clamp, Extremum, is_in_a_graph, traced_by_jit
from clampgrad._implementation.traced import traced
from clampgrad._torch.surroundings import (
    check_levels_allow_writing,
    guarded,
    in_levels,
    without_dispatch_modes,
)
from clampgrad._torch.tangents import carry_tangents_at_a_level

with without_dispatch_modes():
    for operator in OPERATORS:
        rows(operator)  # now: what is traced later has no values to look up


def resolved(gradient: str, maximize: bool) -> str:
    """The canonical name, or the error."""
    for argument, value, kind in (("gradient", gradient, str), ("maximize", maximize, bool)):
        if not isinstance(value, kind):
            raise TypeError(f"{argument} must be a {kind.__name__}, not {type(value).__name__}")
    name = CANONICAL.get(gradient)
    if name is None:
        raise ValueError(unknown(gradient))
    if maximize and name not in PSEUDO:
        raise ValueError(
            f"maximize=True does not apply to gradient='{gradient}': only 'with_grad' and 'restoring' "
            "depend on whether the loss is maximised"
        )
    return name


def checked(name: str, gradient: str, maximize: bool) -> str:
    """The same for the function `name`: what has no interval has no pseudo-gradient."""
    key = column_named(gradient, maximize)
    if key.partition(",")[0] in PSEUDO and not name.startswith("clamp"):
        raise ValueError(f"gradient='{gradient}' is defined for clamps only, not for {name}")
    return key


def recorded(args: tuple[Any, ...]) -> bool:
    """Whether a gradient may have to be computed: only the levels of torch.func know for sure."""
    tensors = [a for a in args if isinstance(a, Tensor)]
    if not isinstance(args[0], Tensor) or not any([t.is_floating_point() for t in tensors]):
        return False  # torch has no such call, or no backward of it, and says so
    recording = torch.is_grad_enabled() and (in_levels() or any([t.requires_grad for t in tensors]))
    # Forward mode records without grad mode, too.
    if not recording and not carry_tangents_at_a_level(tensors):
        return False
    return not any([isinstance(a, complex) for a in args])  # of which torch has no backward


# ---- Clamps -------------------------------------------------------------------------------------


ROUNDS = (
    "clampgrad: clamp_ would round what min makes of its input to {} before max is compared, and so see other "
    "ties than clamp does. Call clamp, or convert min"
)


def torchs_clamp(x: Tensor, lo: Any, hi: Any) -> Tensor:
    return TORCHS["clamp"](x, lo, hi)


def clamped(name: str, x: Tensor, lo: Any, hi: Any, gradient: str) -> Tensor:
    """A clamp of any name; of its bounds, one at least is given."""
    if not recorded((x, lo, hi)):
        return torchs_own(name, x, lo, hi)
    suffix = "_" if name.endswith("_") else ""
    if suffix:
        check_in_place(x, lo, hi)
        check_levels_allow_writing(x)
    if is_composed(gradient, lo, hi, bool(suffix)) and not is_in_a_graph():
        between = composed_in_place if suffix else composed
        return between(torchs_clamp, x, lo, hi, gradient)
    numbers = [not isinstance(bound, Tensor) for bound in (lo, hi) if bound is not None]
    if len(set(numbers)) == 2:
        if gradient.partition(",")[0] not in AT_ONCE:
            if suffix:
                # If torch refuses the second, it raises before the first has written anything.
                with torch.no_grad():
                    check_fits(x, (lo, hi), torch.clamp_max(x, hi))
                if torch.result_type(x, lo) != x.dtype:
                    raise RuntimeError(ROUNDS.format(str(x.dtype)))
                # The first writes hi too, if it is x.
                hi = hi.clone() if isinstance(hi, Tensor) else hi
            raised = clamped("clamp_min" + suffix, x, lo, None, gradient)
            return clamped("clamp_max" + suffix, raised, None, hi, gradient)
        if numbers[0] and not x.is_floating_point():
            # How torch clamps integers by a number beyond their range depends on the release.
            # Integers have no gradient, so the clamp by that number can be done first.
            return clamped(name, x, torch.clamp_min(x, lo), hi, gradient)
        if numbers[0]:
            lo = in_dtype(lo, x.dtype)  # in which the first of the two compares
    return Clamp.of(name, operator_of(lo, hi), gradient, all(numbers), x, lo, hi)


def operator_of(lo: Any, hi: Any) -> str:
    """The operator of the contract that a clamp between those is."""
    return "clamp_min" if hi is None else "clamp_max" if lo is None else "clamp"


def column_of(gradient: str, maximize: bool) -> str:
    """The name of a convention in the rows of the contract: one that
    depends on `maximize` has two."""
    directed = f"{gradient}, maximize"
    return directed if maximize and directed in PSEUDO_GRADIENTS["x = y"] else gradient


KNOWN = {(name, False): convention for name, convention in CANONICAL.items()}
KNOWN |= {(n, True): column_of(c, True) for n, c in CANONICAL.items() if c in PSEUDO}


def column_named(gradient: str, maximize: bool) -> str:
    """The same for what the caller names, or the error."""
    if type(gradient) is str and type(maximize) is bool and (gradient, maximize) in KNOWN:
        return KNOWN[gradient, maximize]
    return column_of(resolved(gradient, maximize), maximize)


def clamp_kernel(name: str) -> Callable[..., Tensor]:
    """The function behind the operator and the Python function of that name."""

    def kernel(
        input: Tensor,
        min: Any = None,
        max: Any = None,
        *,
        gradient: str = "min_norm",
        maximize: bool = False,
        out: Tensor | None = None,
    ) -> Tensor:
        gradient = column_named(gradient, maximize)
        args = (input, guarded(min), guarded(max))
        if out is not None:
            return torchs_own(name, *args, out=out)
        if not recorded(args) or (min is None and max is None):
            return torchs_own(name, *args)
        return clamped(name, *args, gradient)

    def upper(input: Tensor, max: Any, **keywords: Any) -> Tensor:
        return kernel(input, None, max, **keywords)

    return upper if name.startswith("clamp_max") else kernel


# ---- maximum and its kind -----------------------------------------------------------------------


def extremum_kernel(name: str) -> Callable[..., Tensor]:
    def kernel(
        input: Tensor,
        other: Tensor,
        *,
        gradient: str = "min_norm",
        maximize: bool = False,
        out: Tensor | None = None,
    ) -> Tensor:
        key = checked(name, gradient, maximize)
        if out is not None:
            return torchs_own(name, input, other, out=out)
        if not (isinstance(other, Tensor) and recorded((input, other))):
            return torchs_own(name, input, other)
        return Extremum.of(name, name, key, False, input, other)

    return kernel


# ---- The functions of _C.pyi --------------------------------------------------------------------


# The functions that people call, by name: clampgrad.functional puts them here.
PUBLIC: dict[str, Callable[..., Tensor]] = {}


def function(name: str, kernel: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Subclasses and modes get the public function, and what traces a graph gets the operator."""

    def call(*given: Any, gradient: str, maximize: bool = False, **keywords: Any) -> Tensor:
        checked(name, gradient, maximize)  # a wrong name is said before anything else
        keywords["gradient"] = gradient
        if maximize:
            keywords["maximize"] = True
        relevant = [a for a in (*given, keywords.get("out")) if a is not None]
        if has_torch_function(relevant):
            return handle_torch_function(PUBLIC[name], relevant, *given, **keywords)
        if is_compiling():
            return traced(name, *given, **keywords)
        if torch.jit.is_tracing():
            with traced_by_jit(not name.endswith("_")):  # which overwrites its argument
                return traced(name, *given, **keywords)
        return kernel(*given, **keywords)

    return call


KERNELS = {name: clamp_kernel(name) for name in CLAMPS}
KERNELS |= {name: extremum_kernel(name) for name in EXTREMA}
FUNCTIONS = {name: function(name, kernel) for name, kernel in KERNELS.items()}
