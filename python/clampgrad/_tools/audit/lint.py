"""Judges the counts of a site: warnings, each with its evidence, and one
piece of advice for all of them."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from clampgrad._contract.words import counted, out_of
from clampgrad._tools.audit.callers import packages
from clampgrad._tools.audit.calls import is_of_list, named_as
from clampgrad._tools.audit.consumers import Singular
from clampgrad._tools.audit.positions import AT_HI, AT_LO, rounded, shortest
from clampgrad._tools.audit.sites import COUNT, Site, passing

WARNINGS = {
    "bound-rounds": "the dtype turns a bound into 0, 1, -1 or infinity, or two bounds into one",
    "bound-singular": (
        "a bound is a singular point of what consumes the result: log, sqrt, a division"
    ),
    "gradient-not-finite": (
        "an infinite or NaN gradient arrived at the clamp, or arises right behind it"
    ),
    "conventions-differ": "torch up to 2.13 and torch from 2.14 on differ here",
}

MEANINGFUL = (0.0, 1.0, -1.0, torch.inf, -torch.inf)


@dataclass(frozen=True)
class Diagnostic:
    """A warning about a call site. What to do about it is the `remedy` of its :class:`Finding`.

    Attributes:
        name: ``"bound-rounds"``, ``"bound-singular"``, ``"gradient-not-finite"`` or
            ``"conventions-differ"``.
        message: what is wrong.
        evidence: the numbers behind the warning.
    """

    name: str
    message: str
    evidence: dict[str, Any]


# Above which differences `conventions-differ` warns: the norm of the difference over the norm, and
# the share of gradients whose sign differs. 0 is a sign of its own.
NORM = 0.01
SIGNS = 0.001


# ---- Noted while the program runs ----------------------------------------------------------------


@dataclass(frozen=True)
class Rounded:
    which: str  # "min", "max" or "both"
    written: float
    becomes: float
    dtype: torch.dtype
    wider: torch.dtype  # one that keeps the bounds apart from what they become here


def note_rounding(site: Site, dtype: torch.dtype, lo: float | None, hi: float | None) -> None:
    """Keeps what a dtype makes of the bounds of a call, where that is another meaningful value."""
    for found in _rounded(lo, hi, dtype):
        if len(site.hazards) < 64:
            site.hazards.setdefault(found, found)


@lru_cache(1024)
def _rounded(lo: float | None, hi: float | None, dtype: torch.dtype) -> list[Rounded]:
    wider = torch.float64 if _changed(lo, hi, torch.float32) else torch.float32
    return [Rounded(*found, dtype, wider) for found in _changed(lo, hi, dtype)]


def _changed(
    lo: float | None, hi: float | None, dtype: torch.dtype
) -> list[tuple[str, float, float]]:
    """Which bounds a dtype turns into another meaningful value: as
    written, and what they become."""
    found, become = [], {}
    for which, bound in {"min": lo, "max": hi}.items():
        if bound is None or bound != bound:
            continue
        become[which] = rounded(bound, dtype)
        if become[which] != bound and become[which] in MEANINGFUL:
            found.append((which, bound, become[which]))
    if lo is not None and hi is not None and lo < hi and become.get("min") == become.get("max"):
        found.append(("both", lo, become["min"]))
    return found


# ---- Read from a site ----------------------------------------------------------------------------


def diagnostics(site: Site) -> list[Diagnostic]:
    """All warnings for a site."""
    found = []
    for key, hazard in site.hazards.items():
        if isinstance(hazard, Rounded):
            found.append(_of_rounding(hazard))
        elif not _is_guard(site, key[1], hazard):
            found.append(_of_singularity(site, key[1], hazard))
    return [*found, *_not_finite(site), *_differ(site)]


def _of_rounding(r: Rounded) -> Diagnostic:
    dtype, becomes = name_of(r.dtype), shortest(r.becomes, r.dtype)
    message = f"{r.which}={r.written!r} is {becomes} in {dtype}"
    if r.which == "both":
        message = f"both bounds are {becomes} in {dtype}"
    near = None if r.which == "both" else _neighbour(r)
    evidence = {
        "bound": r.which,
        "written": r.written,
        "becomes": r.becomes,
        "nearest": near,
        "nearest_text": near and shortest(near, r.dtype),
        "dtype": dtype,
        "wider": name_of(r.wider),
    }
    return Diagnostic("bound-rounds", message, evidence)


def _neighbour(r: Rounded) -> float:
    """The number of the dtype next to what the bound has become, on
    the side where it was written."""
    info = torch.finfo(r.dtype)
    if r.becomes == 0:  # the nearest normal one: a subnormal number does not guard a division
        return info.tiny if r.written > 0 else -info.tiny
    if abs(r.becomes) == torch.inf:
        return info.max if r.becomes > 0 else -info.max
    towards_0 = abs(r.written) < 1
    size = 1 - info.eps / 2 if towards_0 else 1 + info.eps
    return size if r.becomes > 0 else -size


def _passes(site: Site, which: str, convention: str | None = None) -> bool:
    """Whether an element at that bound hands its gradient on, as the program
    stands or under a convention."""
    bit = AT_LO if which == "min" else AT_HI
    at = [p for p in range(256) if p & bit]
    answers = (v.now if convention is None else v.under(convention) for v in site.differentiated())
    return any(bool(answer.slope[at].any()) for answer in answers if answer)


def _is_guard(site: Site, which: str, hazard: Singular) -> bool:
    """Whether the gradient blocks that infinite derivative, on every release of torch."""
    return hazard.finite and not site.follows_torch and not _passes(site, which)


def _of_singularity(site: Site, which: str, hazard: Singular) -> Diagnostic:
    at = sum(site.counts()[kind] for kind in ("at_bound", "beyond"))
    what = "derivative" if hazard.finite else "value"
    message = (
        f"where the input is at or beyond {which}, {hazard.caller.file}:{hazard.caller.line} takes "
        f"{hazard.function} of {shortest(hazard.argument, hazard.dtype)}, whose {what} is not "
        f"finite; {counted(at, 'element')} stood at or beyond a bound"
    )
    evidence = {
        "bound": which,
        "function": hazard.function,
        "argument": hazard.argument,
        "value_finite": hazard.finite,
        "file": hazard.caller.file,
        "line": hazard.caller.line,
        "module": hazard.caller.module,
        "at_or_beyond_a_bound": at,
        "passes_at_the_bound": _passes(site, which),
        "min_norm_blocks": not _passes(site, which, "min_norm"),
    }
    return Diagnostic("bound-singular", message, evidence)


def _not_finite(site: Site) -> list[Diagnostic]:
    heard = site.differentiated()
    behind = sum((v.behind for v in heard), Counter())
    found = [
        Diagnostic(
            "gradient-not-finite",
            f"{node} took the gradient 0 of the call, and made "
            f"{counted(count, 'infinite or NaN gradient')} of it",
            {"node": node, "made": count},
        )
        for node, count in behind.items()
        if count
    ]
    arrived = sum(int(v.infinite.sum()) for v in heard)
    left = sum(v.infinite_where(passing(v.now)) for v in heard if v.now is not None)
    if not arrived:
        return found
    of = sum(int(v.sums[COUNT].sum()) for v in heard)
    received = counted(arrived, "infinite or NaN gradient")
    message = f"the call received {received} among {of:,}, and passed {left:,} on"
    evidence = {"arrived": arrived, "left": left, "gradients": of}
    return [*found, Diagnostic("gradient-not-finite", message, evidence)]


def _differ(site: Site) -> list[Diagnostic]:
    if not site.follows_torch:
        return []
    norm, signs = site.between("inclusive", "joint")
    of = sum(int(v.sums[COUNT].sum()) for v in site.heard())
    if norm <= NORM and signs <= SIGNS * of:
        return []
    message = (
        "torch up to 2.13 (inclusive) and torch from 2.14 on (joint) differ: the norm of the "
        f"difference is {norm:.2g} times the norm, and the sign differs (from 0, too) in "
        f"{out_of(signs, of, 'gradient')}"
    )
    let_through = sum(
        v.infinite_where(passing(v.under("inclusive")) & ~passing(v.under("min_norm")))
        for v in site.heard()
    )
    evidence = {
        "relative_norm": norm,
        "sign_changes": signs,
        "gradients": of,
        "infinite_only_under_inclusive": let_through,
    }
    return [Diagnostic("conventions-differ", message, evidence)]


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# ---- What to do about it -------------------------------------------------------------------------


def remedy(warnings: list[Diagnostic], function: str, through: str, file: str) -> str:
    """One piece of advice for all warnings of a line. The call is not the user's to write
    where it is in an installed package or in a function of torch: `inside` names that."""
    found = {name: [w.evidence for w in warnings if w.name == name] for name in WARNINGS}
    rounds, singular, differ = (
        found[name] for name in ("bound-rounds", "bound-singular", "conventions-differ")
    )
    inside = "the package" if packages(file) else function if through else ""
    return " ".join(
        dict.fromkeys(
            [
                *_bounds_to_take(rounds, singular, inside),
                *_gradient_to_name(singular, differ, function, inside),
                *_origins(found["gradient-not-finite"], bool(singular)),
            ]
        )
    )


def _origins(not_finite: list[Any], is_known: bool) -> Iterator[str]:
    for node in [e["node"] for e in not_finite if "node" in e]:
        yield (
            f"Clamp what is given to the function before, not what it returns: {node} multiplies "
            "by an infinite derivative, or divides by 0, also where the gradient is 0."
        )
    if any("arrived" in e for e in not_finite) and not is_known:
        yield (
            "torch.autograd.detect_anomaly() names the operator that makes the infinite gradients."
        )


def _bounds_to_take(rounds: list[Any], singular: list[Any], inside: str) -> Iterator[str]:
    for e in rounds:
        take = "Take bounds further apart"
        if e["bound"] != "both":
            normal = "" if e["becomes"] else "normal "
            take = (
                f"Take {e['bound']}={e['nearest_text']}, the nearest {normal}number that "
                f"{e['dtype']} has on that side"
            )
        yield f"{take}, or {f'call {inside}' if inside else 'clamp'} in {e['wider']}."
    rounded_away = {e["bound"] for e in rounds}
    others = dict.fromkeys(e["bound"] for e in singular if e["bound"] not in rounded_away)
    if others:
        move = f"If {inside} takes the bound from you, move" if inside else "Move"
        yield f"{move} {' and '.join(others)} off that point, by more than the dtype rounds away."


def _gradient_to_name(
    singular: list[Any], differ: list[Any], function: str, inside: str
) -> Iterator[str]:
    """One gradient for all that was found, if there is one that is right."""

    def named(gradient: str) -> str:
        if inside:
            return f'a pin, with clampgrad.pin("{gradient}") around the call of {inside}'
        return f'clampgrad.{named_as(function)}(..., gradient="{gradient}")'

    blocks = f"{named('min_norm')}, which hands back 0 at the bounds"
    passes = " inclusive would pass infinite gradients on."
    if any(not (e["value_finite"] and e["min_norm_blocks"]) for e in singular):
        yield "Until then no gradient helps."
        if differ:
            yield f"Then name one: {named('inclusive')}."
    elif singular:
        yield f"Or name the gradient: {blocks}." + passes * bool(differ)
    elif any(e["infinite_only_under_inclusive"] for e in differ):
        yield f"Name the gradient: {blocks}.{passes}"
    elif differ:
        if is_of_list(function):
            yield f"No pin reaches a list: for each Tensor, call {named('inclusive')}."
            return
        program = "clampgrad run --gradient inclusive" if inside else "a pin"
        yield f"Name the gradient: {named('inclusive')}, or {program} for the program."
