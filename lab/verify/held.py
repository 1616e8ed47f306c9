"""Gradients held to the table of conventions, and to those of another run."""

import math
from importlib import import_module
from types import ModuleType

import torch

from ..series import Claim

# In the form of checks.gradients: {operator, kind, mode}: [for each point: args, g, gradients].
Gradients = dict[str, list[list[float]]]


def table() -> ModuleType:
    """The table of conventions with its reader."""
    return import_module("oracle")


def same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def is_forward(mode: str) -> bool:
    return mode.startswith(("forward mode", "jvp")) or mode == "forward"


def group(key: str) -> str:
    """Which kernels a mode reaches: forward mode stands in each of them anew."""
    operator, kind, mode = key.split(", ")
    if mode.endswith("one bound of clamp"):
        return f"clamp, {kind}"
    return f"foreach {operator}, {kind}" if "foreach" in mode else f"{operator}, {kind}"


def in_table(key: str) -> bool:
    """maximum of numbers is not: there are lists of it alone."""
    operator, kind, _ = key.split(", ")
    return kind in table().TABLE["operators"][operator]["rows"][0]


def rounded(key: str, rows: list[list[float]]) -> list[list[float]]:
    """The rows with their bounds in the dtype of the mode, as forward has them."""
    dtype = getattr(torch, key.split(", ")[2].split()[0])
    bounds = slice(1, 3 if key.startswith("clamp,") else 2)
    return [
        [*r[:1], *torch.tensor(r[bounds], dtype=dtype).tolist(), *r[bounds.stop :]] for r in rows
    ]


def selected(operator: str, args: list[torch.Tensor], shares: torch.Tensor) -> torch.Tensor:
    """Of forward mode on 2.15, which beside a NaN is not the transpose: a comparison with a NaN is false, and the
    tangent is that of the argument which is then selected."""
    if operator in ("fmax", "fmin"):
        return shares
    chosen = torch.full_like(args[0], 1)
    if operator == "clamp":
        x, low, high = args
        beyond = torch.where(x < low, 1.0, torch.where(x > high, 2.0, 0.0))
        chosen = torch.where(low > high, 2.0, beyond)
    alone = torch.stack([(chosen == i).double() for i in range(len(args))])
    return torch.where(torch.stack(args).isnan().any(0), alone, shares)


def expected(
    convention: str, key: str, rows: list[list[float]], count: int, forward: str
) -> list[list[float]]:
    """The gradients that the table asks for at each point, of `count` arguments."""
    if not rows:
        raise ValueError(f"{key}: no points, so that nothing would be compared")
    oracle = table()
    operator, kind, mode = key.split(", ")
    points = torch.tensor([row[: count + 1] for row in rows], dtype=torch.float64)
    *args, g = points.unbind(1)
    factors = oracle.factors(operator, kind, convention, args)
    if is_forward(mode) and forward == "2.15" and kind == "tensors":
        factors = selected(operator, args, factors)
    return torch.stack([oracle.scaled(g, f) for f in factors], 1).tolist()


def brief(numbers: list[float]) -> str:
    return "[" + ", ".join(f"{n:g}" for n in numbers) + "]"


def against_table(
    found: Gradients, convention: str, changed: set[str], forward: str = "transpose"
) -> list[str]:
    """Where the gradients are not those of a convention, one example for each operator and mode.

    Forward mode is held to the table where the patch changed it: elsewhere it is stock's own, which
    is no transpose at NaN.
    """
    failures = []
    for key, rows in found.items():
        operator, _, mode = key.split(", ")
        if not in_table(key) or (is_forward(mode) and group(key) not in changed):
            continue
        count = 3 if operator == "clamp" else 2
        every = [expected(convention, key, rows, count, forward)]
        if mode.endswith("beside"):
            every.append(expected(convention, key, rounded(key, rows), count, forward))
        for row, *wanted in zip(rows, *every):
            got = row[count + 1 :]
            if not any(all(map(same, got, w)) for w in wanted):
                lost = not any(got) and any(wanted[0]) and len(got) > 1
                word = ": no subgradient, the gradient is lost" if lost else ""
                failures.append(
                    f"{key}: at {brief(row[:count])}, g = {row[count]:g}, "
                    f"{brief(got)} is not {convention}'s {brief(wanted[0])}{word}"
                )
                break
    return failures


def changes(a: Gradients, b: Gradients) -> list[str]:
    """Which operators, kinds and modes have other gradients, with how many points."""
    lines = []
    for key in a:
        n = sum(not all(map(same, x, y)) for x, y in zip(a[key], b[key], strict=True))
        if n:
            lines.append(f"{key}: {n} of {len(a[key])}")
    return lines


def held(found: Gradients, stock: Gradients, claim: Claim, changed: set[str]) -> list[str]:
    """Where the gradients are not what a patch claims.

    One convention for all that it covers: that of the claim, or the one that fits best if it names
    none. What it does not cover must have stock's gradients.
    """

    def covered(key: str) -> bool:
        operator, kind, _ = key.split(", ")
        return claim.covers(operator, kind)

    if claim.unchanged:
        changed = (
            set()
        )  # a formula of forward mode that is written anew has stock's tangents all the same
    inside = {key: rows for key, rows in found.items() if covered(key)}
    names = [claim.convention] if claim.convention else table().EXACT
    failures: list[str] = min(
        (against_table(inside, n, changed, claim.forward) for n in names), key=len
    )
    strangers = {key: rows for key, rows in stock.items() if key not in inside}
    failures += [f"outside of the scope, {line}" for line in changes(strangers, found)]
    # What no table is asked about is stock's.
    others = {
        key: rows
        for key, rows in stock.items()
        if key in inside
        and (not in_table(key) or (is_forward(key.split(", ")[2]) and group(key) not in changed))
    }
    return failures + [f"not as on stock, {line}" for line in changes(others, found)]


def convention_of(found: Gradients, claim: Claim) -> str | None:
    """The convention that the claim names, or the one that all the gradients have, if there is one."""
    if claim.convention:
        return claim.convention
    return next((n for n in table().EXACT if not against_table(found, n, set())), None)
