"""The convention that the installed torch has by itself: pin("installed"), and
whether that torch is patched."""

from __future__ import annotations

import functools
from typing import Any

import torch

from clampgrad import _implementation
from clampgrad._contract.table import ALIASES, EXACT, TABLE
from clampgrad._pin.body import PinnedFunction
from clampgrad._torch.compiler import disable_compilation
from clampgrad._torch.quiet import quietly
from clampgrad._torch.surroundings import force_recording, registered_derivatives
from clampgrad._torch.torchs_functions import TORCHS

# The overloads that are measured.
FUNCTIONAL = [
    name + overload
    for name, operator in TABLE["operators"].items()
    for overload in (("", ".Tensor") if name.startswith("clamp") else ("",))
]


class NoConvention(RuntimeError):
    """The error for gradients of this torch that the table does not have: somebody changed them."""


def detect_installed_convention() -> str:
    """Returns the convention of the derivatives that torch has now.

    An extension may register others at the alias key Autograd at any time, also after the first
    pin, whose kernels would hide them. The file and line that registered them identify them.
    """
    return measure_convention(registered_derivatives(f"aten::{name}" for name in FUNCTIONAL))


@functools.lru_cache(maxsize=1)
def measure_convention(derivatives: tuple[str, ...]) -> str:
    """Measures the convention, because the number of a release says nothing about a patched torch.
    `derivatives`, which are registered, are the key of the cache."""
    # The answer is kept, so nothing around the first call may change it: a
    # pin, no_grad, a mode, a hook.
    unpinned = PinnedFunction(measure_gradients, None)
    with force_recording(), quietly():
        torch_gradients = unpinned(TORCHS)
        for convention in EXACT:
            if torch_gradients == unpinned(_implementation, gradient=convention):
                return convention
    raise NoConvention(
        f"the gradients of this torch ({torch.__version__}) are those of no convention: name one "
        "instead of 'installed'. `clampgrad survey` shows what this torch does"
    )


def release() -> tuple[int, ...]:
    return tuple(map(int, torch.__version__.split(".")[:2]))


def by_release() -> dict[tuple[int, ...], str]:
    """Maps each release that an alias names (torch_2_13) to the convention of the releases up to
    it."""
    own = {name: convention for name, convention in ALIASES.items() if name.startswith("torch_")}
    return {tuple(map(int, name.split("_")[1:])): convention for name, convention in own.items()}


def convention_of_release() -> str:
    """Returns the convention that the release of the installed torch has. A newer release has the
    last one."""
    until = by_release()
    return until[min((number for number in until if number >= release()), default=max(until))]


def describe_patch() -> str | None:
    """Returns a sentence if the gradients of this torch are not those of its release, or None."""
    own = convention_of_release()
    try:
        measured = f"those of {detect_installed_convention()}"
    except NoConvention:
        measured = "those of no convention"
    if measured == f"those of {own}":
        return None
    if release() > max(by_release()):
        return (
            f"torch {torch.__version__} is patched, or newer than this clampgrad: its gradients are "
            f"{measured}."
        )
    return (
        f"torch {torch.__version__} is patched: its gradients are {measured}; the release has those "
        f"of {own}."
    )


def measure_gradients(functions: Any, **keywords: Any) -> list[float]:
    """Measures the gradient of the first argument in each row of the table: beside constants,
    beside differentiated arguments, and beside numbers.

    NaN is left out: nothing is documented there, and releases of one convention differ.
    """
    gradients = []
    for name, operator in TABLE["operators"].items():
        for row in operator["rows"]:
            x, *others = map(float, row["points"][0])
            if any(v != v for v in (x, *others)):
                continue
            for given in (tensors(others), tensors(others, True), others):
                if given is not others or "numbers" in row:
                    (leaf,) = tensors([x], True)
                    result = getattr(functions, name)(leaf, *given, **keywords)
                    gradients.append(torch.autograd.grad(result, leaf)[0].item())
    return gradients


def tensors(values: list[float], differentiated: bool = False) -> list[torch.Tensor]:
    double: dict[str, Any] = {"dtype": torch.float64, "device": "cpu"}
    return [torch.tensor(v, requires_grad=differentiated, **double) for v in values]


for _function in ("registered_derivatives", "measure_gradients"):
    disable_compilation(__name__, _function)
