"""The convention that the installed torch has by itself: pin("installed"), and whether that torch is patched."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import torch

from clampgrad._contract.table import ALIASES, EXACT, TABLE, factors
from clampgrad._pin.functions import Remembered
from clampgrad._torch.after_import import when_imported
from clampgrad._torch.surroundings import without_modes

Row = dict[str, Any]


class NoConvention(RuntimeError):
    """Somebody gave this torch gradients that the table does not have."""


@functools.cache
def installed() -> str:
    """Measured, because the number of a release says nothing of a torch that was patched."""
    # The answer is kept, so nothing around the first call may change it: a pin, no_grad, a mode, a hook.
    torchs_own = Remembered(measured, None)
    with without_modes(), torch.inference_mode(False), torch.enable_grad(), ExitStack() as stack:
        # Where they are disabled, as in torch.func, there are none.
        with suppress(RuntimeError):
            stack.enter_context(torch.autograd.graph.saved_tensors_hooks(unchanged, unchanged))
        found = torchs_own()
    names = [c for c in EXACT if all(g == share(row, c, kind) for row, kind, g in found)]
    if not names:
        raise NoConvention(
            f"the gradients of this torch ({torch.__version__}) are those of no convention: name one "
            "instead of 'installed'. `clampgrad survey` shows what this torch does"
        )
    return names[0]


def of_the_release() -> str:
    """The convention that the release of the installed torch has, as the aliases in the table say."""
    number = tuple(map(int, torch.__version__.split(".")[:2]))
    own = {name: convention for name, convention in ALIASES.items() if name.startswith("torch_")}
    since = {tuple(map(int, name.split("_")[1:])): convention for name, convention in own.items()}
    # Each stands for the releases up to its own, the last for later ones too.
    return since[min((release for release in since if release >= number), default=max(since))]


def patched() -> str | None:
    """A sentence, if the gradients are not those of the release: somebody changed this torch."""
    own = of_the_release()
    try:
        found = f"those of {installed()}"
    except NoConvention:
        found = "those of no convention"
    if found == f"those of {own}":
        return None
    return f"torch {torch.__version__} is patched: its gradients are {found}; the release has those of {own}."


def unchanged(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def measured() -> list[tuple[Row, str, float]]:
    """The gradient of the first argument in each row of the table, alone and with the others'.

    At a NaN nothing is documented, and releases that have a convention otherwise differ there.
    """
    found = []
    for name, operator in TABLE["operators"].items():
        function = getattr(torch, name)
        for row, point in points(operator["rows"]):
            if "numbers" in row:
                found.append((row, "numbers", slope(function, point[:1], point[1:])))
            found.append((row, "alone", slope(function, point[:1], tensors(point[1:], False))))
            found.append((row, "tensors", slope(function, point, ())))
    return found


def leave_uncompiled(_: object) -> None:
    """A first use inside a compiled function measures as any other does."""
    global measured
    measured = torch.compiler.disable(measured)


def points(rows: list[Row]) -> Iterator[tuple[Row, list[float]]]:
    for row in rows:
        point = [float(value) for value in row["points"][0]]
        if not any(value != value for value in point):
            yield row, point


def tensors(values: Any, differentiated: bool) -> list[torch.Tensor]:
    return [
        torch.tensor(v, dtype=torch.float64, device="cpu", requires_grad=differentiated)
        for v in values
    ]


def slope(function: Any, differentiated: list[float], constants: Any) -> float:
    given = tensors(differentiated, True)
    return torch.autograd.grad(function(*given, *constants), given)[0].item()


def share(row: Row, convention: str, kind: str) -> float:
    """What the table says of the first argument."""
    from fractions import Fraction  # here: it takes a tenth of the package's own import

    differentiated = {"x"} if kind == "alone" else {*row["active"]}
    return float(Fraction(factors(row, convention, kind == "numbers", differentiated)[0]))


when_imported("torch._dynamo", leave_uncompiled)
