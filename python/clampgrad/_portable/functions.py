"""What people call: names are checked, torch says what is wrong with the rest, and one rule is chosen."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
import torch.autograd.forward_ad as fwad
from torch import Tensor
from torch.compiler import is_compiling
from torch.overrides import handle_torch_function, has_torch_function

from clampgrad._portable.gate import Clamp, Extremum, Rule
from clampgrad._table import ALIASES, CONVENTIONS, PSEUDO

if TYPE_CHECKING:
    from typing import TypeAlias

Bound: TypeAlias = Tensor | int | float | None

# ---- Names -------------------------------------------------------------------------------------------


@cache
def resolved(gradient: str, maximize: bool) -> str:
    """The canonical name, or a ValueError."""
    if not isinstance(gradient, str) or not isinstance(maximize, bool):
        raise TypeError(
            f"gradient must be a str and maximize a bool, not {gradient!r}, {maximize!r}"
        )
    name = ALIASES.get(gradient, gradient)
    if name not in CONVENTIONS:
        raise ValueError(f"unknown gradient '{gradient}'; known are: {', '.join(CONVENTIONS)}")
    if maximize and name not in PSEUDO:
        raise ValueError(
            f"maximize=True means nothing for gradient='{gradient}': only 'with_grad' and 'restoring' "
            "depend on whether the loss is minimised"
        )
    return name


def resolved_exact(gradient: str, maximize: bool, operator: str) -> str:
    name = resolved(gradient, maximize)
    if name in PSEUDO:
        raise ValueError(
            f"gradient='{gradient}' is for clamps: {operator} has no interval to be outside of"
        )
    return name


# ---- Forwards ------------------------------------------------------------------------------------------


def clamp_with_min(x: Tensor, lo: Any, **out: Any) -> Tensor:
    return torch.clamp(x, min=lo, **out)


def clamp_with_max(x: Tensor, hi: Any, **out: Any) -> Tensor:
    return torch.clamp(x, max=hi, **out)


def one_bound_after_the_other(x: Tensor, lo: Any, hi: Any, **out: Any) -> Tensor:
    return torch.clamp_max(torch.clamp_min(x, lo), hi, **out)


def recorded(args: tuple[Any, ...]) -> bool:
    """Whether a gradient may have to be computed: only the levels of torch.func know for sure."""
    tensors = [a for a in args if isinstance(a, Tensor)]
    return any(t.is_floating_point() for t in tensors) and (
        (torch.is_grad_enabled() and any(t.requires_grad for t in tensors))
        or fwad._current_level >= 0
        or torch._C._are_functorch_transforms_active()
    )


def apply(rule: Rule, *args: Any) -> Tensor:
    if not recorded(args):
        return rule.forward(*args)
    function = Clamp if rule.operator.startswith("clamp") else Extremum
    return function.apply(rule, torch.is_grad_enabled(), *args)[0]


# ---- Clamps --------------------------------------------------------------------------------------------


def clamped(name: str, x: Tensor, lo: Bound, hi: Bound, gradient: str, maximize: bool) -> Tensor:
    """A clamp of any name, out of place; of its bounds, one at least is given."""
    if lo is None or hi is None:
        operator, bound = ("clamp_min", lo) if hi is None else ("clamp_max", hi)
        forward: Callable[..., Tensor] = getattr(torch, operator)
        if name == "clamp":
            forward = clamp_with_min if hi is None else clamp_with_max
        number = not isinstance(bound, Tensor)
        return apply(Rule(operator, forward, gradient, maximize, number), x, bound)
    numbers = [not isinstance(bound, Tensor) for bound in (lo, hi)]
    mixed = any(numbers) and not all(numbers)
    if mixed and gradient not in (
        *PSEUDO,
        "min_norm",
    ):  # the others do not look at all three at once
        raised = clamped("clamp_min", x, lo, None, gradient, maximize)
        return clamped("clamp_max", raised, None, hi, gradient, maximize)
    if mixed and numbers[0] and not x.is_floating_point():
        # What a number beyond the range of integers means depends on the release; as nothing of it is
        # differentiated, what it makes of them can stand for it.
        return clamped("clamp", x, torch.clamp_min(x, lo), hi, gradient, maximize)
    forward = one_bound_after_the_other if mixed else torch.clamp
    return apply(Rule("clamp", forward, gradient, maximize, all(numbers)), x, lo, hi)


def torchs_own(name: str, x: Tensor, lo: Bound, hi: Bound, **out: Any) -> Tensor:
    """torch's operator of that name; with a number and a Tensor, those of the two names."""
    if name.startswith("clamp_m"):
        return getattr(torch, name)(x, lo if hi is None else hi, **out)
    if None in (lo, hi) or isinstance(lo, Tensor) == isinstance(hi, Tensor):
        return getattr(torch, name)(x, lo, hi, **out)
    if name == "clamp_":
        return torch.clamp_max_(torch.clamp_min_(x, lo), hi)
    return one_bound_after_the_other(x, lo, hi, **out)


def clamp_kernel(name: str) -> Callable[..., Tensor]:
    """What the operator of that name does."""

    def kernel(
        input: Tensor,
        min: Bound,
        max: Bound,
        gradient: str = "min_norm",
        maximize: bool = False,
        out: Tensor | None = None,
    ) -> Tensor:
        gradient = resolved(gradient, maximize)
        if out is not None:
            return torchs_own(name, input, min, max, out=out)
        if (min is None and max is None) or not recorded((input, min, max)):
            return torchs_own(name, input, min, max)
        result = clamped(name.rstrip("_"), input, min, max, gradient, maximize)
        if not name.endswith("_"):
            return result
        if result.shape != input.shape or not torch.can_cast(result.dtype, input.dtype):
            return torchs_own(name, input, min, max)  # which raises
        return input.copy_(result)

    return kernel


def clamp_function(name: str) -> Callable[..., Tensor]:
    kernel = clamp_kernel(name)

    def function(
        input: Tensor,
        min: Bound,
        max: Bound,
        gradient: str,
        maximize: bool,
        out: Tensor | None,
    ) -> Tensor:
        if not has_torch_function((input, min, max, out)) and not is_compiling():
            return kernel(input, min, max, gradient, maximize, out)
        bounds = [min] * ("max" not in name) + [max] * ("min" not in name)
        keywords: dict[str, Any] = {"gradient": gradient, "maximize": maximize}
        return elsewhere(name, (input, *bounds), keywords, out)

    return function


clamp, clamp_ = clamp_function("clamp"), clamp_function("clamp_")
clamp_min, clamp_min_ = clamp_function("clamp_min"), clamp_function("clamp_min_")
clamp_max, clamp_max_ = clamp_function("clamp_max"), clamp_function("clamp_max_")


# ---- maximum and its kind ------------------------------------------------------------------------------


def extremum_kernel(name: str) -> Callable[..., Tensor]:
    forward = getattr(torch, name)

    def kernel(
        input: Tensor,
        other: Tensor,
        gradient: str = "min_norm",
        maximize: bool = False,
        out: Tensor | None = None,
    ) -> Tensor:
        gradient = resolved_exact(gradient, maximize, name)
        if out is not None:
            return forward(input, other, out=out)
        return apply(Rule(name, forward, gradient, False, False), input, other)

    return kernel


def extremum_function(name: str) -> Callable[..., Tensor]:
    kernel = extremum_kernel(name)

    def function(input: Tensor, other: Tensor, gradient: str, out: Tensor | None) -> Tensor:
        if not has_torch_function((input, other, out)) and not is_compiling():
            return kernel(input, other, gradient, False, out)
        return elsewhere(name, (input, other), {"gradient": gradient}, out)

    return function


maximum, minimum = extremum_function("maximum"), extremum_function("minimum")
fmax, fmin = extremum_function("fmax"), extremum_function("fmin")


# ---- Those who want to see the call ------------------------------------------------------------------


def elsewhere(
    name: str, args: tuple[Any, ...], keywords: dict[str, Any], out: Tensor | None
) -> Tensor:
    """Subclasses and modes get the public function, and what traces a graph gets the operator."""
    import clampgrad

    keywords |= {} if out is None else {"out": out}
    relevant = [a for a in (*args, out) if a is not None]
    if has_torch_function(relevant):
        return handle_torch_function(getattr(clampgrad, name), relevant, *args, **keywords)
    return clampgrad.functional.traced(name, *args, **keywords)
