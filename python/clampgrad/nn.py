"""Modules with a named gradient, and `convert`, which gives a model's modules one.

`ReLU`, `ReLU6` and `Hardtanh` inherit from the modules of the same names in torch.nn: they have the same
arguments and state_dict, and the keyword `gradient`. With the default, `min_norm`, their
gradient is that of torch except at NaN (where `min_norm` gives 0, and torch gives g or 0), and they save
one bit per element for backward instead of a whole Tensor.
"""

import warnings
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from clampgrad._contract.table import CANONICAL
from clampgrad._torch.quantization import Unprepared, refuse_in_graphs
from clampgrad.activations import hardtanh, relu, relu6
from clampgrad.functional import Bound, Gradient, clamp, clamp_

__all__ = ["Clamp", "Hardtanh", "ReLU", "ReLU6", "conversions", "convert", "undo"]


def __dir__() -> list[str]:
    return __all__


Model = TypeVar("Model", bound=nn.Module)

# torch.fx traces a module down to the calls of these.
for _function in ("clamp", "clamp_", "hardtanh", "relu", "relu6"):
    torch.fx.wrap(_function)


class _Named(nn.Module):
    """Base of the modules here: it holds the gradient and shows it."""

    # The defaults of a module that `convert` changed, until it sets its own.
    gradient: Gradient = "min_norm"
    maximize: bool = False
    inplace: bool
    qconfig = Unprepared()

    def _name(self, gradient: Gradient, maximize: bool) -> None:
        clamp(torch.empty(0), 0, 1, gradient=gradient, maximize=maximize)  # raises for a wrong name
        self.gradient = cast("Gradient", CANONICAL[gradient])
        self.maximize = maximize

    def _keywords(self) -> dict[str, Any]:
        return {"gradient": self.gradient, "maximize": self.maximize}

    def extra_repr(self) -> str:
        parts = [
            super().extra_repr(),
            f"gradient={self.gradient!r}",  # always: torch's module of this name has none
            "maximize=True" if self.maximize else "",
        ]
        return ", ".join(filter(None, parts))


refuse_in_graphs(_Named)


class Clamp(_Named):
    """Clamps its input into [min, max]; the module of :func:`clampgrad.clamp`.

    Args:
        min, max: a number, a Tensor (kept as a buffer; a Parameter is learned), or None for no bound.
        gradient: the name or an alias of a convention; :func:`clampgrad.clamp` lists them.
        maximize: whether the loss is maximised (`with_grad` and `restoring` only).
        inplace: whether to write the result into the input.

    The input is a Tensor of any shape and real dtype; the output has the broadcast shape of it and the bounds.

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
        self._name(gradient, maximize)
        self.inplace = inplace
        for name, bound in {"min": min, "max": max}.items():
            if isinstance(bound, Tensor) and not isinstance(bound, nn.Parameter):
                self.register_buffer(name, bound)
            else:
                setattr(self, name, bound)

    def forward(self, input: Tensor) -> Tensor:
        function = clamp_ if self.inplace else clamp
        return function(input, self.min, self.max, **self._keywords())

    def extra_repr(self) -> str:
        parts = [
            f"{name}={tuple(b.shape) if isinstance(b, Tensor) else b}"
            for name, b in {"min": self.min, "max": self.max}.items()
            if b is not None
        ]
        return ", ".join([*parts, *["inplace=True"] * self.inplace, super().extra_repr()])


class ReLU(_Named, nn.ReLU):
    """:class:`torch.nn.ReLU` with a named gradient at 0; the keywords are those of :class:`clampgrad.nn.Clamp`."""

    def __init__(
        self, inplace: bool = False, *, gradient: Gradient = "min_norm", maximize: bool = False
    ) -> None:
        super().__init__(inplace)
        self._name(gradient, maximize)

    def forward(self, input: Tensor) -> Tensor:
        return relu(input, self.inplace, **self._keywords())


class Hardtanh(_Named, nn.Hardtanh):
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
        super().__init__(min_val, max_val, inplace)
        self._name(gradient, maximize)

    def forward(self, input: Tensor) -> Tensor:
        return hardtanh(input, self.min_val, self.max_val, self.inplace, **self._keywords())


class ReLU6(_Named, nn.ReLU6):
    """:class:`torch.nn.ReLU6` with a named gradient at 0 and 6; the keywords are those of
    :class:`clampgrad.nn.Clamp`."""

    def __init__(
        self, inplace: bool = False, *, gradient: Gradient = "min_norm", maximize: bool = False
    ) -> None:
        super().__init__(inplace)
        self._name(gradient, maximize)

    def forward(self, input: Tensor) -> Tensor:
        return relu6(input, self.inplace, **self._keywords())


_TWINS: dict[type[nn.Module], type[nn.Module]] = {
    nn.ReLU: ReLU,
    nn.ReLU6: ReLU6,
    nn.Hardtanh: Hardtanh,
}


# ---- The modules of a model ------------------------------------------------------------------------------

# An attribute of a module that `convert` changed: its class before, and the gradient it had then.
_WAS = "_clampgrad_was"


def convert(
    model: Model,
    gradient: Gradient = "min_norm",
    *,
    maximize: bool = False,
    filter_fn: Callable[[nn.Module, str], bool] | None = None,
) -> Model:
    """Gives the ReLU, ReLU6, Hardtanh and Clamp modules of a model a named gradient, in place.

    A module stays the same object, with its hooks, flags and names; only its class changes. Modules whose
    class derives from torch's are not converted, because it is unknown what they override. Function calls
    inside a `forward` (`F.relu`, `torch.clamp`) are not modules and are not converted; use
    :class:`clampgrad.pin` for those of the clamp family.

    torch.ao.quantization finds modules by their exact type. Prepare a model first and convert what was
    prepared (the other order raises an error); call :func:`undo` before it becomes a model of integers.

    Args:
        model: any module; it may itself be a ReLU, ReLU6, Hardtanh or Clamp.
        gradient: the name or an alias of a convention. The default keeps the gradients of torch's modules
            (except at NaN) and reduces what they save for backward.
        maximize: whether the loss is maximised (`with_grad` and `restoring` only).
        filter_fn: called with a module and its fully qualified name; only modules for which it
            returns True are converted.

    Returns:
        The model itself. :func:`conversions` reports what changed, and :func:`undo` reverts it.

    Warns:
        UserWarning: there was no module to convert, or one has a `forward` of its own (by hooks of accelerate,
            for example) and is not converted, because a new class would not change which `forward` runs.

    Raises:
        ValueError: the name of the convention is unknown. The model is then unchanged.

    Example::

        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU6())
        >>> model = clampgrad.nn.convert(model, gradient="inclusive")
        >>> clampgrad.nn.conversions(model)
        {'1': "ReLU6 -> ReLU6(gradient='inclusive')"}
        >>> clampgrad.nn.undo(model)[1]
        ReLU6()
    """
    Clamp(0, 1, gradient=gradient, maximize=maximize)  # raises for a wrong name
    chosen = [
        (name, module)
        for name, module in model.named_modules()
        if (type(module) in _TWINS or isinstance(module, _Named))
        and (filter_fn is None or filter_fn(module, name))
    ]
    if not chosen:
        warnings.warn(
            f"clampgrad.nn.convert found no ReLU, ReLU6, Hardtanh or Clamp in {type(model).__name__}: where "
            "its code calls functions, call clampgrad's (clampgrad.relu6), or use clampgrad.pin for torch.clamp",
            stacklevel=2,
        )
    left_alone = [name or "(model)" for name, module in chosen if "forward" in vars(module)]
    for _, module in chosen:
        if "forward" not in vars(module):
            if _WAS not in vars(module):
                named = {k: v for k, v in vars(module).items() if k in ("gradient", "maximize")}
                vars(module)[_WAS] = type(module), named
            module.__class__ = _TWINS.get(type(module), type(module))
            module._name(gradient, maximize)
    if left_alone:
        warnings.warn(
            f"clampgrad.nn.convert left alone {', '.join(left_alone)}: a forward of its own was set on "
            "the instance (by hooks of accelerate, perhaps); convert the model before that",
            stacklevel=2,
        )
    return model


def conversions(model: nn.Module) -> dict[str, str]:
    """Reports what :func:`convert` changed: the name of each module, with its former and present form."""
    return {
        name: f"{vars(module)[_WAS][0].__name__} -> {type(module).__name__}({module.extra_repr()})"
        for name, module in model.named_modules()
        if _WAS in vars(module)
    }


def undo(model: Model) -> Model:
    """Reverts every :func:`convert` of a model, and returns the model."""
    for module in model.modules():
        if _WAS in vars(module):
            was, named = vars(module).pop(_WAS)
            module.__class__ = was
            for key in ("gradient", "maximize"):
                vars(module).pop(key, None)
            vars(module).update(named)
    return model
