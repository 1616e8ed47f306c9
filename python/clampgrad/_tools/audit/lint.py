"""Judges the counts of a site: warnings, each with its evidence, and a piece of advice for all."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from clampgrad._contract.words import format_count, out_of
from clampgrad._tools.audit.callers import packages_folder
from clampgrad._tools.audit.calls import is_of_list, out_of_place_name
from clampgrad._tools.audit.consumers import Singular
from clampgrad._tools.audit.positions import AT_HI, AT_LO, round_to_dtype, shortest_digits
from clampgrad._tools.audit.sites import Site, passing_mask

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


# `conventions-differ` warns above either: the norm of the difference over the norm, and the share
# of gradients whose sign differs. 0 is a sign of its own.
MOST_NORM = 0.01
MOST_SIGNS = 0.001


# ---- Noted while the program runs ----------------------------------------------------------------


@dataclass(frozen=True)
class RoundedBound:
    which: str  # "min", "max" or "both"
    written: float
    becomes: float
    dtype: torch.dtype
    wider: torch.dtype  # one that keeps the bounds apart from what they become here


def note_rounding(site: Site, dtype: torch.dtype, lo: float | None, hi: float | None) -> None:
    """Notes the bounds of a call that a dtype turns into another meaningful value."""
    for bound in _find_rounded_bounds(lo, hi, dtype):
        if len(site.hazards) < 64:
            site.hazards.setdefault(bound, bound)


@lru_cache(1024)
def _find_rounded_bounds(
    lo: float | None, hi: float | None, dtype: torch.dtype
) -> list[RoundedBound]:
    wider = torch.float64 if _find_changed_values(lo, hi, torch.float32) else torch.float32
    return [RoundedBound(*change, dtype, wider) for change in _find_changed_values(lo, hi, dtype)]


def _find_changed_values(
    lo: float | None, hi: float | None, dtype: torch.dtype
) -> list[tuple[str, float, float]]:
    """Returns which bounds a dtype turns into another meaningful value, as they are written, and
    what they become."""
    changes, become = [], {}
    for which, bound in {"min": lo, "max": hi}.items():
        if bound is None or bound != bound:
            continue
        become[which] = round_to_dtype(bound, dtype)
        if become[which] != bound and become[which] in MEANINGFUL:
            changes.append((which, bound, become[which]))
    if lo is not None and hi is not None and lo < hi and become.get("min") == become.get("max"):
        changes.append(("both", lo, become["min"]))
    return changes


# ---- Read from a site ----------------------------------------------------------------------------


def diagnose(site: Site) -> list[Diagnostic]:
    """Returns all warnings for a site."""
    warnings = []
    for key, hazard in site.hazards.items():
        if isinstance(hazard, RoundedBound):
            warnings.append(_diagnose_rounding(hazard))
        elif not _is_always_blocked(site, key[1], hazard):
            warnings.append(_diagnose_singularity(site, key[1], hazard))
    return [*warnings, *_diagnose_not_finite(site), *_diagnose_difference(site)]


def _diagnose_rounding(bound: RoundedBound) -> Diagnostic:
    dtype, becomes = dtype_name(bound.dtype), shortest_digits(bound.becomes, bound.dtype)
    if bound.which == "both":
        message, nearest = f"both bounds are {becomes} in {dtype}", None
    else:
        message = f"{bound.which}={bound.written!r} is {becomes} in {dtype}"
        nearest = _nearest_number(bound)
    evidence = {
        "bound": bound.which,
        "written": bound.written,
        "becomes": bound.becomes,
        "nearest": nearest,
        "nearest_text": nearest and shortest_digits(nearest, bound.dtype),
        "dtype": dtype,
        "wider": dtype_name(bound.wider),
    }
    return Diagnostic("bound-rounds", message, evidence)


def _nearest_number(bound: RoundedBound) -> float:
    """Returns the number of the dtype next to what the bound becomes, on the side where it was
    written."""
    info = torch.finfo(bound.dtype)
    if bound.becomes == 0:  # the nearest normal one: a subnormal number does not guard a division
        return info.tiny if bound.written > 0 else -info.tiny
    if abs(bound.becomes) == torch.inf:
        return info.max if bound.becomes > 0 else -info.max
    is_towards_0 = abs(bound.written) < 1
    size = 1 - info.eps / 2 if is_towards_0 else 1 + info.eps
    return size if bound.becomes > 0 else -size


def _is_gradient_passed(site: Site, which: str, convention: str | None = None) -> bool:
    """Whether an element at that bound passes its gradient on, as the program is or under a
    convention."""
    bit = AT_LO if which == "min" else AT_HI
    at_bound = [position for position in range(256) if position & bit]
    responses = (
        v.current_response if convention is None else v.response_under(convention)
        for v in site.recording_variants()
    )
    return any(bool(response.slope[at_bound].any()) for response in responses if response)


def _is_always_blocked(site: Site, which: str, hazard: Singular) -> bool:
    """Whether the input gets no gradient from that infinite derivative, on any release of torch."""
    return hazard.finite and not site.follows_torch and not _is_gradient_passed(site, which)


def _diagnose_singularity(site: Site, which: str, hazard: Singular) -> Diagnostic:
    at_or_beyond = sum(site.count_by_kind()[kind] for kind in ("at_bound", "beyond"))
    what = "derivative" if hazard.finite else "value"
    message = (
        f"where the input is at or beyond {which}, {hazard.caller.file}:{hazard.caller.line} takes "
        f"{hazard.function} of {shortest_digits(hazard.argument, hazard.dtype)}, whose {what} is not "
        f"finite; {format_count(at_or_beyond, 'element')} stood at or beyond a bound"
    )
    evidence = {
        "bound": which,
        "function": hazard.function,
        "argument": hazard.argument,
        "value_finite": hazard.finite,
        "file": hazard.caller.file,
        "line": hazard.caller.line,
        "module": hazard.caller.module,
        "at_or_beyond_a_bound": at_or_beyond,
        "passes_at_the_bound": _is_gradient_passed(site, which),
        "min_norm_blocks": not _is_gradient_passed(site, which, "min_norm"),
    }
    return Diagnostic("bound-singular", message, evidence)


def _diagnose_not_finite(site: Site) -> list[Diagnostic]:
    variants = site.recording_variants()
    by_node = sum((v.not_finite_upstream for v in variants), Counter())
    warnings = [
        Diagnostic(
            "gradient-not-finite",
            f"{node} took the gradient 0 of the call, and made "
            f"{format_count(count, 'infinite or NaN gradient')} of it",
            {"node": node, "made": count},
        )
        for node, count in by_node.items()
        if count
    ]
    arrived = sum(int(v.infinite.sum()) for v in variants)
    left = sum(
        v.count_infinite(passing_mask(v.current_response))
        for v in variants
        if v.current_response is not None
    )
    if not arrived:
        return warnings
    gradients = sum(v.count_gradients() for v in variants)
    received = format_count(arrived, "infinite or NaN gradient")
    message = f"the call received {received} among {gradients:,}, and passed {left:,} on"
    evidence = {"arrived": arrived, "left": left, "gradients": gradients}
    return [*warnings, Diagnostic("gradient-not-finite", message, evidence)]


def _diagnose_difference(site: Site) -> list[Diagnostic]:
    if not site.follows_torch:
        return []
    norm, signs = site.compare_conventions("inclusive", "joint")
    gradients = sum(v.count_gradients() for v in site.variants_with_gradients())
    if norm <= MOST_NORM and signs <= MOST_SIGNS * gradients:
        return []
    message = (
        "torch up to 2.13 (inclusive) and torch from 2.14 on (joint) differ: the norm of the "
        f"difference is {norm:.2g} times the norm, and the sign differs (from 0, too) in "
        f"{out_of(signs, gradients, 'gradient')}"
    )
    only_inclusive = sum(
        v.count_infinite(
            passing_mask(v.response_under("inclusive"))
            & ~passing_mask(v.response_under("min_norm"))
        )
        for v in site.variants_with_gradients()
    )
    evidence = {
        "relative_norm": norm,
        "sign_changes": signs,
        "gradients": gradients,
        "infinite_only_under_inclusive": only_inclusive,
    }
    return [Diagnostic("conventions-differ", message, evidence)]


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# ---- What to do about it -------------------------------------------------------------------------


def write_remedy(warnings: list[Diagnostic], function: str, through: str, file: str) -> str:
    """Returns one piece of advice for all warnings of a line."""
    evidence = {name: [w.evidence for w in warnings if w.name == name] for name in WARNINGS}
    rounds, singular, differ = (
        evidence[name] for name in ("bound-rounds", "bound-singular", "conventions-differ")
    )
    # What makes the call, where the user cannot rewrite it.
    inside = "the package" if packages_folder(file) else function if through else ""
    return " ".join(
        dict.fromkeys(
            [
                *_advise_on_bounds(rounds, singular, inside),
                *_advise_on_gradient(singular, differ, function, inside),
                *_advise_on_origins(evidence["gradient-not-finite"], bool(singular)),
            ]
        )
    )


def _advise_on_origins(not_finite: list[Any], is_known: bool) -> Iterator[str]:
    for node in [e["node"] for e in not_finite if "node" in e]:
        yield (
            f"Clamp what is given to the function before, not what it returns: {node} multiplies "
            "by an infinite derivative, or divides by 0, also where the gradient is 0."
        )
    if any("arrived" in e for e in not_finite) and not is_known:
        yield (
            "torch.autograd.detect_anomaly() names the operator that makes the infinite gradients."
        )


def _advise_on_bounds(rounds: list[Any], singular: list[Any], inside: str) -> Iterator[str]:
    for e in rounds:
        advice = "Take bounds further apart"
        if e["bound"] != "both":
            normal = "" if e["becomes"] else "normal "
            advice = (
                f"Take {e['bound']}={e['nearest_text']}, the nearest {normal}number that "
                f"{e['dtype']} has on that side"
            )
        yield f"{advice}, or {f'call {inside}' if inside else 'clamp'} in {e['wider']}."
    rounded_away = {e["bound"] for e in rounds}
    others = dict.fromkeys(e["bound"] for e in singular if e["bound"] not in rounded_away)
    if others:
        move = f"If {inside} takes the bound from you, move" if inside else "Move"
        yield f"{move} {' and '.join(others)} off that point, by more than the dtype rounds away."


def _advise_on_gradient(
    singular: list[Any], differ: list[Any], function: str, inside: str
) -> Iterator[str]:
    """Names one gradient for all warnings, if there is one that is right."""

    def name_gradient(gradient: str) -> str:
        if inside:
            return f'a pin, with clampgrad.pin("{gradient}") around the call of {inside}'
        return f'clampgrad.{out_of_place_name(function)}(..., gradient="{gradient}")'

    blocks = f"{name_gradient('min_norm')}, which hands back 0 at the bounds"
    passes = " inclusive would pass infinite gradients on."
    if any(not (e["value_finite"] and e["min_norm_blocks"]) for e in singular):
        yield "Until then no gradient helps."
        if differ:
            yield f"Then name one: {name_gradient('inclusive')}."
    elif singular:
        yield f"Or name the gradient: {blocks}." + passes * bool(differ)
    elif any(e["infinite_only_under_inclusive"] for e in differ):
        yield f"Name the gradient: {blocks}.{passes}"
    elif differ:
        if is_of_list(function):
            yield f"No pin reaches a list: for each Tensor, call {name_gradient('inclusive')}."
            return
        program = "clampgrad run --gradient inclusive" if inside else "a pin"
        yield f"Name the gradient: {name_gradient('inclusive')}, or {program} for the program."
