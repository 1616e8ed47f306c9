"""Follows the value of a bound through elementwise operators until one of them is singular there.

A clamp puts many elements at exactly one value, its bound. Each operator that takes the
result is run on that value too, by itself: if what it returns or its derivative is not
finite, the bound is a singular point of it (the logarithm of a lower bound 0, ``acos`` of an
upper bound 1, a division by 0).
"""

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from clampgrad._tools.audit.callers import Caller, find_caller
from clampgrad._tools.audit.positions import round_to_dtype
from clampgrad._tools.audit.sites import Site
from clampgrad._torch.surroundings import force_recording, hidden_from_modes, in_transform, version

# By name, without the underscores of methods, of in-place forms and of operators, and without the
# names of torch.linalg and torch.special.
FOLLOWED = {
    "unary": """
        abs absolute neg negative square sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p
        sin cos tan asin acos atan arcsin arccos arctan sinh cosh tanh asinh acosh atanh arcsinh
        arccosh arctanh sigmoid logit erf erfc erfinv lgamma digamma logsigmoid softplus""",
    "with a number": """
        add radd iadd sub subtract rsub isub mul multiply rmul imul pow rpow ipow float_power div
        divide true_divide truediv rtruediv itruediv rdiv idiv""",
    # The value stays, in another shape or dtype.
    "same": """
        view reshape flatten unflatten squeeze unsqueeze permute transpose swapaxes movedim t expand
        contiguous clone to float double half bfloat16 type getitem select narrow""",
    # Only for a bound of 0: if every element is 0, so is the sum.
    "sum": "sum mean",
    # As if every element were at the bound.
    "norm": "norm vector_norm",
}
KIND_BY_NAME = {name: kind for kind, names in FOLLOWED.items() for name in names.split()}
# The divisor of a Tensor too.
DIVISIONS = ("div", "divide", "true_divide", "truediv", "itruediv", "idiv")

MOST_IMAGES = 1024  # that are kept; bounds that follow a schedule would need any number

Side = tuple[Site, str]  # a site and "min" or "max"


class Trace(NamedTuple):
    """The bounds, in their present dtype and with their present value."""

    sides: tuple[Side, ...]
    values: tuple[float, ...]
    dtype: torch.dtype


class Image(NamedTuple):
    """The result of an operator for the value of a bound."""

    value: float
    finite: bool
    smooth: bool  # whether the derivative is finite


@dataclass(frozen=True)
class Singular:
    """An operator that a bound is a singular point of."""

    function: str
    argument: float  # the value of the bound there
    dtype: torch.dtype
    finite: bool  # whether the result is finite; if it is, its derivative is not
    caller: Caller


class Consumers:
    """The living results of clamps, and what the program does with them."""

    def __init__(self) -> None:
        self._traces: dict[int, tuple[weakref.ref[Tensor], int, Trace]] = {}
        self._images_by_call: dict[Any, list[Image]] = {}

    def begin(self, result: Tensor, sides: list[tuple[Side, float]]) -> None:
        """Follows the result of a clamp whose bounds are numbers."""
        if sides:
            names, values = zip(*sides)
            key = id(result)
            alive = weakref.ref(result, lambda _: self._traces.pop(key, None))
            self._traces[key] = alive, version(result), Trace(names, values, result.dtype)

    def bounds_between(self, tensor: Tensor, lo: float, hi: float) -> list[tuple[Side, float]]:
        """Returns the bounds that a Tensor may be equal to and that a further clamp passes on."""
        trace = self._find(tensor)
        return [(s, v) for s, v in zip(trace.sides, trace.values) if lo < v < hi] if trace else []

    def _find(self, tensor: Any) -> Trace | None:
        """Returns the trace of a Tensor, unless the Tensor was changed in place since."""
        result, version_before, trace = self._traces.get(id(tensor), (None, 0, None))
        if result is None or result() is not tensor:
            return None
        if version(tensor) != version_before:
            del self._traces[id(tensor)]
            return None
        return trace

    def follow(
        self, function: Callable[..., Any], args: Any, kwargs: Any
    ) -> Callable[[Any], None] | None:
        """Returns what to do with the result of a call that is not a clamp, or None."""
        if not self._traces:
            return None
        if not args:
            args, kwargs = (kwargs.get("input"),), {k: v for k, v in kwargs.items() if k != "input"}
        name = getattr(function, "__name__", "").strip("_")
        name = name.removeprefix("linalg_").removeprefix("special_")
        if name not in KIND_BY_NAME or "out" in kwargs or in_transform() or torch.jit.is_tracing():
            return None
        trace = self._find(args[0])
        other = args[1] if len(args) > 1 else kwargs.get("other")
        if isinstance(other, Tensor):
            divisor = self._find(other) if name in DIVISIONS else None
            return divisor and partial(self._follow_division, name, divisor)
        return trace and partial(
            self._follow_operator, name, function, args[0].dim(), args[1:], kwargs, trace
        )

    def _follow_division(self, name: str, trace: Trace, result: Any) -> None:
        self._follow_images(name, trace, _evaluate(lambda y: 1 / y, trace, 1), result)

    def _follow_operator(
        self,
        name: str,
        function: Any,
        dim: int,
        args: Any,
        kwargs: Any,
        trace: Trace,
        result: Any,
    ) -> None:
        if not isinstance(result, Tensor) or not result.is_floating_point():
            return
        if KIND_BY_NAME[name] == "same":
            images = [Image(v, True, True) for v in trace.values]
        elif KIND_BY_NAME[name] == "sum":
            images = [Image(v if v == 0 else torch.nan, True, True) for v in trace.values]
        else:
            key = (function, dim, trace.values, trace.dtype, str(args), str(kwargs))
            if key not in self._images_by_call:
                if len(self._images_by_call) >= MOST_IMAGES:
                    self._images_by_call.clear()
                self._images_by_call[key] = _evaluate(
                    lambda y: function(y, *args, **kwargs), trace, dim
                )
            images = self._images_by_call[key]
        self._follow_images(name, trace, images, result)

    def _follow_images(self, name: str, trace: Trace, images: list[Image], result: Any) -> None:
        """Notes the bounds at which an operator is singular; follows the others in its result."""
        if not isinstance(result, Tensor) or not result.is_floating_point():
            return
        sound = []
        for side, argument, image in zip(trace.sides, trace.values, images):
            # If nothing is differentiated, a derivative that is not finite does no harm.
            if image.finite and (image.smooth or not result.requires_grad):
                sound.append((side, image.value))
            else:
                site, which = side
                singular = Singular(name, argument, trace.dtype, image.finite, find_caller())
                site.hazards.setdefault(("singular", which, name, singular.caller), singular)
        with hidden_from_modes():
            sound = [(s, round_to_dtype(v, result.dtype)) for s, v in sound if v == v]
        if not result.is_inference():
            self.begin(result, sound)


def _evaluate(function: Callable[[Tensor], Tensor], trace: Trace, dim: int) -> list[Image]:
    """Applies an operator to each value of a trace, as one element with the same number of
    dimensions, because the operator may name one of them."""
    images = []
    with force_recording():
        for value in trace.values:
            leaf = torch.full(
                (1,) * dim, value, dtype=trace.dtype, device="cpu", requires_grad=True
            )
            result = function(leaf * 1)  # in-place forms want no leaf
            (slope,) = torch.autograd.grad(result.sum(), leaf)
            finite = bool(result.isfinite().all())
            images.append(Image(result.sum().item(), finite, bool(slope.isfinite().all())))
    return images
