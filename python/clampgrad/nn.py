"""Modules with a named gradient, and `convert`, which gives one to the modules of a model.

`ReLU`, `ReLU6` and `Hardtanh` are the modules of the same names in torch.nn, which they inherit from:
same arguments, state_dict and repr, and `gradient=`. For the default, `min_norm`, their gradient
is torch's own but at NaN (where `min_norm` gives 0; torch gives g or 0), and what they keep for
backward is one bit an element in place of a whole Tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from clampgrad.functional import Bound, Gradient, clamp, clamp_, clamp_min, clamp_min_

__all__ = ["Clamp", "Conversion", "Hardtanh", "ReLU", "ReLU6", "convert"]


class _Named(nn.Module):
    """What the modules here share: which gradient, and how it is shown."""

    # A module that `convert` changed has these from here until it sets its own.
    gradient: Gradient = "min_norm"
    maximize: bool = False
    inplace: bool

    def _name(self, gradient: Gradient, maximize: bool) -> None:
        clamp(torch.empty(0), 0, 1, gradient=gradient, maximize=maximize)  # raises for a wrong name
        self.gradient, self.maximize = gradient, maximize

    def _clamp(self, input: Tensor, min: Bound | None, max: Bound | None) -> Tensor:
        function = clamp_ if self.inplace else clamp
        return function(input, min, max, gradient=self.gradient, maximize=self.maximize)

    def extra_repr(self) -> str:
        parts = [
            super().extra_repr(),
            f"gradient={self.gradient!r}" if self.gradient != "min_norm" else "",
            "maximize=True" if self.maximize else "",
        ]
        return ", ".join(filter(None, parts))


class _Interval(nn.Module):
    """The part of Clamp's repr that comes before the gradient."""

    def extra_repr(self) -> str:
        bounds = {name: getattr(self, name) for name in ("min", "max")}
        parts = [
            f"{name}={tuple(b.shape) if isinstance(b, Tensor) else b}"
            for name, b in bounds.items()
            if b is not None
        ]
        return ", ".join(parts + ["inplace=True"] * self.inplace)


class Clamp(_Named, _Interval):
    """Clamps its input into [min, max]; the module of :func:`clampgrad.clamp`.

    Args:
        min, max: a number, a Tensor (kept as a buffer; a Parameter is learned), or None for no bound.
        gradient: the convention.
        maximize: the loss is maximised (`with_grad` and `restoring` only).
        inplace: write the result into the input.

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
        return self._clamp(input, self.min, self.max)


class ReLU(_Named, nn.ReLU):
    """:class:`torch.nn.ReLU` with a named gradient at 0."""

    def __init__(
        self, inplace: bool = False, *, gradient: Gradient = "min_norm", maximize: bool = False
    ) -> None:
        super().__init__(inplace)
        self._name(gradient, maximize)

    def forward(self, input: Tensor) -> Tensor:
        if not input.is_floating_point():  # no gradient to name
            return super().forward(input)
        function = clamp_min_ if self.inplace else clamp_min
        return function(input, 0, gradient=self.gradient, maximize=self.maximize)


class Hardtanh(_Named, nn.Hardtanh):
    """:class:`torch.nn.Hardtanh` with a named gradient at its bounds."""

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
        if not input.is_floating_point():  # a float bound would promote it; torch's own does not
            return nn.Hardtanh.forward(self, input)
        return self._clamp(input, self.min_val, self.max_val)


class ReLU6(_Named, nn.ReLU6):
    """:class:`torch.nn.ReLU6` with a named gradient at 0 and 6."""

    def __init__(
        self, inplace: bool = False, *, gradient: Gradient = "min_norm", maximize: bool = False
    ) -> None:
        super().__init__(inplace)
        self._name(gradient, maximize)

    forward = Hardtanh.forward


TWINS: dict[type[nn.Module], type[nn.Module]] = {
    nn.ReLU: ReLU,
    nn.ReLU6: ReLU6,
    nn.Hardtanh: Hardtanh,
}


class Conversion(Mapping[str, str]):
    """What `convert` changed: the names of modules, each with what it was and is, as text."""

    def __init__(self, model: nn.Module, before: dict[str, tuple[nn.Module, type, dict[str, Any]]]):
        self._before = before
        self._text = {
            name: f"{was.__name__} -> {type(module).__name__}({module.extra_repr()})"
            for name, (module, was, _) in before.items()
        }

    def __getitem__(self, name: str) -> str:
        return self._text[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._text)

    def __len__(self) -> int:
        return len(self._text)

    def __repr__(self) -> str:
        return "\n".join(f"{name or '(model)'}: {text}" for name, text in self.items())

    def undo(self) -> None:
        """Makes every module what it was. Undo several conversions in reverse order."""
        for module, was, named in self._before.values():
            module.__class__ = was
            for key in ("gradient", "maximize"):
                module.__dict__.pop(key, None)
            module.__dict__.update(named)


def convert(
    model: nn.Module, gradient: Gradient = "min_norm", *, maximize: bool = False
) -> Conversion:
    """Gives the ReLU, ReLU6, Hardtanh and Clamp modules of a model a named gradient, in place.

    A module stays the same object, with its hooks, flags and names: its class is changed to the one
    here. Modules of a class derived from torch's are left alone, because what they override
    is unknown. Calls of functions (`F.relu`, `torch.clamp`) inside a `forward` are no modules:
    for those of the clamp family there is :func:`clampgrad.pin`.

    Args:
        model: any module, also a single ReLU.
        gradient: the convention. With the default, gradients stay what they were (but at NaN), and
            what the modules keep for backward shrinks.
        maximize: the loss is maximised (`with_grad` and `restoring` only).

    Returns:
        A mapping of the names of the modules that changed to what they were and are, with `undo()`.

    Raises:
        ValueError: the name of the convention is unknown. Nothing is changed then.

    Example::

        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU6())
        >>> changed = clampgrad.nn.convert(model, gradient="inclusive")
        >>> changed
        1: ReLU6 -> ReLU6(gradient='inclusive')
        >>> changed.undo()
        >>> model[1]
        ReLU6()
    """
    Clamp(0, 1, gradient=gradient, maximize=maximize)  # raises for a wrong name
    before = {}
    for name, module in model.named_modules():
        was = type(module)
        if was in TWINS or isinstance(module, _Named):
            named = {k: v for k, v in module.__dict__.items() if k in ("gradient", "maximize")}
            before[name] = (module, was, named)
            module.__class__ = TWINS.get(was, was)
            module._name(gradient, maximize)
    return Conversion(model, before)
