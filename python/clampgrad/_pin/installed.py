"""The convention that the installed torch has by itself: pin("installed"), and
whether that torch is patched."""

from __future__ import annotations

import functools
from typing import Any

import torch

from clampgrad import _implementation
from clampgrad._contract.table import ALIASES, EXACT, TABLE
from clampgrad._pin.body import Remembered
from clampgrad._torch.compiler import leave_uncompiled
from clampgrad._torch.quiet import quietly
from clampgrad._torch.surroundings import differentiating, registered_derivatives
from clampgrad._torch.torchs_functions import TORCHS

# The overloads that are measured.
FUNCTIONAL = [
    name + overload
    for name, operator in TABLE["operators"].items()
    for overload in (("", ".Tensor") if name.startswith("clamp") else ("",))
]


class NoConvention(RuntimeError):
    """Somebody gave this torch gradients that the table does not have."""


def installed() -> str:
    """Returns the convention of the derivatives that torch has now. An extension may register
    others at the alias key Autograd at any time, also after the first pin, whose kernels would hide
    them. They are told apart by the file and line that registered them."""
    return measured(registered_derivatives(f"aten::{name}" for name in FUNCTIONAL))


@functools.lru_cache(maxsize=1)
def measured(derivatives: tuple[str, ...]) -> str:
    """Measured, because the number of a release says nothing of a torch that was patched.
    `derivatives` are the ones that are registered: others are measured anew."""
    # The answer is kept, so nothing around the first call may change it: a
    # pin, no_grad, a mode, a hook.
    unpinned = Remembered(slopes, None)
    with differentiating(), quietly():
        found = unpinned(TORCHS)
        for convention in EXACT:
            if found == unpinned(_implementation, gradient=convention):
                return convention
    raise NoConvention(
        f"the gradients of this torch ({torch.__version__}) are those of no convention: name one "
        "instead of 'installed'. `clampgrad survey` shows what this torch does"
    )


def release() -> tuple[int, ...]:
    return tuple(map(int, torch.__version__.split(".")[:2]))


def by_release() -> dict[tuple[int, ...], str]:
    """The convention of the releases up to each that the aliases in the table name."""
    own = {name: convention for name, convention in ALIASES.items() if name.startswith("torch_")}
    return {tuple(map(int, name.split("_")[1:])): convention for name, convention in own.items()}


def of_the_release() -> str:
    """The convention that the release of the installed torch has; one
    that is newer has the last."""
    until = by_release()
    return until[min((number for number in until if number >= release()), default=max(until))]


def patched() -> str | None:
    """A sentence, if the gradients are not those of the release: somebody changed this torch."""
    own = of_the_release()
    try:
        found = f"those of {installed()}"
    except NoConvention:
        found = "those of no convention"
    if found == f"those of {own}":
        return None
    if release() > max(by_release()):
        return (
            f"torch {torch.__version__} is patched, or newer than this clampgrad: its gradients are "
            f"{found}."
        )
    return (
        f"torch {torch.__version__} is patched: its gradients are {found}; the release has those "
        f"of {own}."
    )


def slopes(functions: Any, **keywords: Any) -> list[float]:
    """The gradient of the first argument in each row of the table: beside constants, beside others
    that are being differentiated, and beside numbers.

    NaN is left out: nothing is documented there, and releases of one convention differ.
    """
    found = []
    for name, operator in TABLE["operators"].items():
        for row in operator["rows"]:
            x, *others = map(float, row["points"][0])
            if any(v != v for v in (x, *others)):
                continue
            for given in (tensors(others), tensors(others, True), others):
                if given is not others or "numbers" in row:
                    (leaf,) = tensors([x], True)
                    result = getattr(functions, name)(leaf, *given, **keywords)
                    found.append(torch.autograd.grad(result, leaf)[0].item())
    return found


def tensors(values: list[float], differentiated: bool = False) -> list[torch.Tensor]:
    double: dict[str, Any] = {"dtype": torch.float64, "device": "cpu"}
    return [torch.tensor(v, requires_grad=differentiated, **double) for v in values]


for _function in ("registered_derivatives", "slopes"):
    leave_uncompiled(__name__, _function)
