"""What the counts of a site mean: warnings, each with its evidence and what to do about it."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from clampgrad._contract.words import counted, out_of
from clampgrad._tools.audit.callers import packages
from clampgrad._tools.audit.consumers import Singular
from clampgrad._tools.audit.positions import AT_HI, AT_LO, rounded
from clampgrad._tools.audit.sites import COUNT, Site

WARNINGS = {
    "bound-rounds": "the dtype turns a bound into 0, 1, -1 or infinity, or two bounds into one",
    "bound-singular": "a bound is a singular point of what consumes the result: log, sqrt, a division",
    "gradient-not-finite": "an infinite or NaN gradient arrived at the clamp",
    "conventions-differ": "torch up to 2.13 and torch from 2.14 on differ here beyond the thresholds",
}

MEANINGFUL = (0.0, 1.0, -1.0, torch.inf, -torch.inf)


@dataclass(frozen=True)
class Diagnostic:
    """A warning about a call site.

    Attributes:
        name: ``"bound-rounds"``, ``"bound-singular"``, ``"gradient-not-finite"`` or
            ``"conventions-differ"``.
        message: what is wrong.
        remedy: what to do.
        evidence: the numbers behind the warning.
    """

    name: str
    message: str
    remedy: str
    evidence: dict[str, Any]


@dataclass(frozen=True)
class Thresholds:
    """The differences above which ``conventions-differ`` warns.

    Attributes:
        norm: norm of the difference over the norm.
        signs: share of the gradients whose sign differs; 0 is a sign of its own.
    """

    norm: float = 0.01
    signs: float = 0.001


USUAL = Thresholds()


# ---- Noted while the program runs ----------------------------------------------------------------


@dataclass(frozen=True)
class Rounded:
    which: str  # "min", "max" or "both"
    written: float
    becomes: float
    dtype: torch.dtype


def note_rounding(site: Site, dtype: torch.dtype, lo: float | None, hi: float | None) -> None:
    """Keeps what a dtype makes of the bounds of a call, where that is another meaningful value."""
    for found in _rounded(lo, hi, dtype):
        if len(site.hazards) < 64:
            site.hazards.setdefault(found, found)


@lru_cache(1024)
def _rounded(lo: float | None, hi: float | None, dtype: torch.dtype) -> list[Rounded]:
    found, become = [], {}
    for which, bound in {"min": lo, "max": hi}.items():
        if bound is None or bound != bound:
            continue
        become[which] = rounded(bound, dtype)
        if become[which] != bound and become[which] in MEANINGFUL:
            found.append(Rounded(which, bound, become[which], dtype))
    if lo is not None and hi is not None and lo < hi and become.get("min") == become.get("max"):
        found.append(Rounded("both", lo, become["min"], dtype))
    return found


# ---- Read from a site ----------------------------------------------------------------------------


def diagnostics(site: Site, thresholds: Thresholds) -> list[Diagnostic]:
    """Everything that there is to warn of at a site."""
    found = [_of_rounding(site, h) for h in site.hazards.values() if isinstance(h, Rounded)]
    for (_, which, *_), hazard in _singular(site):
        if not _blocked_on_purpose(site, which, hazard):
            found.append(_of_singularity(site, which, hazard))
    return [*found, *_not_finite(site), *_differ(site, thresholds)]


def _is_installed(site: Site) -> bool:
    return bool(packages(site.key.caller.file))


def _of_rounding(site: Site, r: Rounded) -> Diagnostic:
    dtype = name_of(r.dtype)
    evidence = {
        "bound": r.which,
        "written": r.written,
        "becomes": r.becomes,
        "dtype": dtype,
    }
    wide = "call the package in float32" if _is_installed(site) else "clamp in float32"
    if r.which == "both":
        message = f"both bounds are {r.becomes:g} in {dtype}"
        return Diagnostic(
            "bound-rounds", message, f"Take bounds further apart, or {wide}.", evidence
        )
    message = f"{r.which}={r.written!r} is {r.becomes:g} in {dtype}"
    near = _neighbour(r)
    evidence["nearest"] = near
    nearest = (
        "nearest" if r.becomes else "nearest normal"
    )  # a subnormal number does not guard a division
    remedy = f"The {nearest} bound that {dtype} has on that side is {near:.4g}; or {wide}."
    return Diagnostic("bound-rounds", message, remedy, evidence)


def _neighbour(r: Rounded) -> float:
    """The number of the dtype next to what the bound has become, on the side where it was written."""
    info = torch.finfo(r.dtype)
    if r.becomes == 0:
        return info.tiny if r.written > 0 else -info.tiny
    if abs(r.becomes) == torch.inf:
        return info.max if r.becomes > 0 else -info.max
    towards_0 = abs(r.written) < 1
    size = 1 - info.eps / 2 if towards_0 else 1 + info.eps
    return size if r.becomes > 0 else -size


def _singular(site: Site) -> list[tuple[Any, Singular]]:
    return [(key, h) for key, h in site.hazards.items() if isinstance(h, Singular)]


def _passes(site: Site, which: str) -> bool:
    """Whether an element at that bound hands its gradient to the input as the program stands."""
    bit = AT_LO if which == "min" else AT_HI
    at = [p for p in range(256) if p & bit]
    return any(v.now is not None and bool(v.now.slope[at].any()) for v in site.variants.values())


def _blocked_on_purpose(site: Site, which: str, hazard: Singular) -> bool:
    """A named convention that stops the infinite derivative there is a guard, not an accident."""
    return hazard.finite and site.key.gradient != "torch" and not _passes(site, which)


def _of_singularity(site: Site, which: str, hazard: Singular) -> Diagnostic:
    at = sum(site.counts()[kind] for kind in ("at_bound", "beyond"))
    what = "derivative" if hazard.finite else "value"
    at_bound = f"{hazard.function} of {hazard.argument:g}"
    message = (
        f"where the input is at or beyond {which}, {hazard.caller.file}:{hazard.caller.line} takes "
        f"{at_bound}, whose {what} is not finite; {counted(at, 'element')} stood at or beyond a bound"
    )
    remedy = "Move the bound off that point, by more than the dtype rounds away."
    if _is_installed(site):
        remedy = "If the package takes the bound from you, move it off that point, by more than the dtype rounds away."
    if hazard.finite:
        gradient = "min_norm"
        named = _pin(gradient) if _is_installed(site) else _call(gradient)
        remedy += f" Or take {named}, which hands back 0 at the bound."
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
    }
    return Diagnostic("bound-singular", message, remedy, evidence)


def _not_finite(site: Site) -> list[Diagnostic]:
    heard = [v for v in site.variants.values() if v.now is not None]
    arrived = sum(int(v.infinite.sum()) for v in heard)
    left = sum(v.infinite_where((v.now.slope != 0).any(-1)) for v in heard if v.now is not None)
    if not arrived:
        return []
    of = sum(int(v.sums[COUNT].sum()) for v in heard)
    received = counted(arrived, "infinite or NaN gradient")
    message = f"the call received {received} among {of:,}, and passed {left:,} on"
    remedy = "torch.autograd.detect_anomaly() names the operator that makes them."
    evidence = {"arrived": arrived, "left": left, "gradients": of}
    return [Diagnostic("gradient-not-finite", message, remedy, evidence)]


def _differ(site: Site, thresholds: Thresholds) -> list[Diagnostic]:
    if not site.follows_torch:
        return []
    norm, signs = site.between("inclusive", "joint")
    of = sum(int(v.sums[COUNT].sum()) for v in site.heard())
    if norm <= thresholds.norm and signs <= thresholds.signs * of:
        return []
    message = (
        f"torch up to 2.13 (inclusive) and torch from 2.14 on (joint) differ: the norm of the "
        f"difference is {norm:.2g} times the norm, and the sign differs (from 0, too) in {out_of(signs, of, 'gradient')}"
    )
    if _is_installed(site):
        remedy = (
            f"The line is in an installed package: pin it, by clampgrad run --gradient inclusive for the "
            f"program or {_pin('inclusive')}."
        )
    else:
        remedy = f"Name the gradient: {_call('inclusive')}, or a pin for the program."
    evidence = {"relative_norm": norm, "sign_changes": signs, "gradients": of}
    return [Diagnostic("conventions-differ", message, remedy, evidence)]


def _call(gradient: str) -> str:
    return f'clampgrad.clamp(..., gradient="{gradient}")'


def _pin(gradient: str) -> str:
    return f'with clampgrad.pin("{gradient}") around the call of the package'


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
