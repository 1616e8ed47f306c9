"""Modules whose gradient is an argument."""

import warnings
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.compiler import is_dynamo_compiling

from clampgrad._contract.table import CANONICAL
from clampgrad._implementation import clamp_plain
from clampgrad._torch.after_import import when_imported
from clampgrad.activations import check_flag, hardtanh, relu, relu6
from clampgrad.functional import Bound, Gradient, clamp, clamp_

# torch.fx traces a module down to the calls of these.
for _function in ("clamp", "clamp_", "hardtanh", "relu", "relu6"):
    torch.fx.wrap(_function)


QUANTIZATION = (
    "torch.ao.quantization knows modules by their exact class: it will leave {} as it is, and drop its gradient where it "
    "is fused with others. Prepare the model first, and give it the named gradient then"
)


def is_quantization_tracer(tracer: Any) -> bool:
    """Whether torch.fx traces for torch.ao.quantization, which traces into our modules, because it
    does not know them."""
    return type(tracer).__module__.startswith("torch.ao.quantization.")


class GradientModule(nn.Module):
    """Base of the modules here: it holds the gradient and shows it."""

    # The defaults of a module to which `set_gradient` gave this class, until it sets its own.
    gradient: Gradient = "min_norm"
    maximize: bool = False
    inplace: bool

    def _set_gradient(self, gradient: Gradient, maximize: bool) -> None:
        clamp(torch.empty(0), 0, 1, gradient=gradient, maximize=maximize)  # raises for a wrong name
        self.gradient = cast("Gradient", CANONICAL[gradient])
        self.maximize = maximize

    def _keywords(self, input: Any) -> dict[str, Any]:
        """Returns the gradient as keywords, for a call with that input."""
        if isinstance(input, torch.fx.Proxy) and is_quantization_tracer(input.tracer):
            warnings.warn(QUANTIZATION.format(repr(self)), stacklevel=3)
        return {"gradient": self.gradient, "maximize": self.maximize}

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "qconfig" and value is not None and "qconfig" not in vars(self):
            warnings.warn(QUANTIZATION.format(repr(self)), stacklevel=2)
        super().__setattr__(name, value)

    def extra_repr(self) -> str:
        parts = [
            super().extra_repr(),
            f"gradient={self.gradient!r}",  # always: torch's module of this name has none
            "maximize=True" if self.maximize else "",
        ]
        return ", ".join(filter(None, parts))


class Clamp(GradientModule):
    """Clamps its input into [min, max]; the module of :func:`clampgrad.clamp`.

    Args:
        min, max: a number, a Tensor (kept as a buffer; a Parameter is
            learned), or None for no bound.
        gradient: the name or an alias of a convention; :func:`clampgrad.clamp` lists them.
        maximize: whether the loss is maximised (`with_grad` and `restoring` only).
        inplace: whether to write the result into the input.

    The input is a Tensor of any shape and real dtype; the output has the
    broadcast shape of it and the bounds. Where min is greater than max the output is max, as in
    ``torch.clamp``; :class:`Hardtanh` refuses such bounds, as torch's does.

    Raises:
        ValueError: both bounds are None, or the name of the convention is unknown.

    Example::

        >>> clampgrad.nn.Clamp(0, 1, gradient="with_grad")
        Clamp(min=0, max=1, gradient='with_grad')
    """

    def __init__(
        self,
        min: Bound | None = None,
        max: Bound | None = None,
        *,
        gradient: Gradient = "min_norm",
        maximize: bool = False,
        inplace: bool = False,
    ) -> None:
        super().__init__()
        if min is None and max is None:
            raise ValueError("Clamp: at least one of min and max must not be None")
        self._set_gradient(gradient, maximize)
        self.inplace = inplace
        for name, bound in {"min": min, "max": max}.items():
            if isinstance(bound, Tensor) and not isinstance(bound, nn.Parameter):
                self.register_buffer(name, bound)
            else:
                setattr(self, name, bound)

    def forward(self, input: Tensor) -> Tensor:
        function = clamp_ if self.inplace else clamp
        return function(input, self.min, self.max, **self._keywords(input))

    def extra_repr(self) -> str:
        parts = [
            f"{name}={tuple(b.shape) if isinstance(b, Tensor) else b}"
            for name, b in {"min": self.min, "max": self.max}.items()
            if b is not None
        ]
        return ", ".join([*parts, *["inplace=True"] * self.inplace, super().extra_repr()])


class ReLU(GradientModule, nn.ReLU):
    """:class:`torch.nn.ReLU` with a named gradient at 0; the keywords are those of
    :class:`clampgrad.nn.Clamp`."""

    def __init__(
        self, inplace: bool = False, *, gradient: Gradient = "min_norm", maximize: bool = False
    ) -> None:
        check_flag(inplace)
        super().__init__(inplace)
        self._set_gradient(gradient, maximize)

    def forward(self, input: Tensor) -> Tensor:
        if not is_dynamo_compiling():
            result = clamp_plain(input, 0, None, self.inplace, self.gradient, self.maximize)
            if result is not None:
                return result
        return relu(input, self.inplace, **self._keywords(input))


class Hardtanh(GradientModule, nn.Hardtanh):
    """:class:`torch.nn.Hardtanh` with a named gradient at its bounds; the keywords are those of
    :class:`clampgrad.nn.Clamp`."""

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        *,
        gradient: Gradient = "min_norm",
        maximize: bool = False,
    ) -> None:
        check_flag(inplace)
        super().__init__(min_val, max_val, inplace)
        self._set_gradient(gradient, maximize)

    def forward(self, input: Tensor) -> Tensor:
        lo, hi = self.min_val, self.max_val
        if hi is not None and not is_dynamo_compiling():
            result = clamp_plain(input, lo, hi, self.inplace, self.gradient, self.maximize)
            if result is not None:
                return result
        return hardtanh(input, lo, hi, self.inplace, **self._keywords(input))


class ReLU6(GradientModule, nn.ReLU6):
    """:class:`torch.nn.ReLU6` with a named gradient at 0 and 6; the keywords are those of
    :class:`clampgrad.nn.Clamp`."""

    def __init__(
        self, inplace: bool = False, *, gradient: Gradient = "min_norm", maximize: bool = False
    ) -> None:
        check_flag(inplace)
        super().__init__(inplace)
        self._set_gradient(gradient, maximize)

    def forward(self, input: Tensor) -> Tensor:
        if not is_dynamo_compiling():
            result = clamp_plain(input, 0, 6, self.inplace, self.gradient, self.maximize)
            if result is not None:
                return result
        return relu6(input, self.inplace, **self._keywords(input))


OUR_CLASS: dict[type[nn.Module], type[GradientModule]] = {
    nn.ReLU: ReLU,
    nn.ReLU6: ReLU6,
    nn.Hardtanh: Hardtanh,
}


def add_deep_lift_rules(captum: Any) -> None:
    """Gives our classes the rules that Captum's DeepLift has for torch's. It passes over a class
    without a rule, and says nothing."""
    rules = captum.SUPPORTED_NON_LINEAR
    for original, replacement in OUR_CLASS.items():
        if original in rules:
            rules.setdefault(replacement, rules[original])


when_imported("captum.attr._core.deep_lift", add_deep_lift_rules)
