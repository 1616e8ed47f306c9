"""A report as people read it: a sentence, the warnings, a table, and what its blanks mean."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

from clampgrad._contract.table import EXACT
from clampgrad._tools.audit.finding import Finding
from clampgrad._tools.audit.lint import Diagnostic
from clampgrad._tools.audit.sites import MOST_BOUNDS

Place: TypeAlias = Callable[[str, int], str]
Group: TypeAlias = list[tuple[Finding, Diagnostic]]

LEFT = ("call", "where", "module", "gradient", "dtype", "bounds")
COUNTS = ("elements", "at bound", "beyond", "NaN", "dead")
COLUMNS = (*LEFT, *COUNTS, *EXACT)
WIDTH = 98  # of prose; the table takes what it needs


def text(findings: list[Finding], skipped: Counter[str], every: int, place: Place) -> str:
    """All of it."""
    parts = [*textwrap.wrap(summary(findings, place), WIDTH), *_warnings(findings, place)]
    if findings:
        parts += ["", _table(findings, place)]
    notes = _notes(findings, skipped, every)
    lines = [line for note in notes for line in textwrap.wrap(note, WIDTH)]
    return "\n".join([*parts, "", *lines] if lines else parts)


def summary(findings: list[Finding], place: Place) -> str:
    """Whether the convention matters, and where."""
    if not findings:
        return "No call of the clamp family was seen."
    heard = [f for f in findings if f.moved]
    if not heard:
        return (
            f"No gradient reached {_any(len(findings))}: positions were counted, but what "
            "a convention would change is unknown."
        )
    moving = sorted((f for f in heard if f.farthest[0]), key=lambda f: f.farthest[0], reverse=True)
    if not moving:
        text = f"No other exact convention would change the gradient at {_any(len(heard))} that a gradient reached"
    else:
        first = moving[0]
        far, name = first.farthest
        much = "away from 0" if far == math.inf else f"by {far:.2g} times its norm"
        text = (
            f"Another exact convention would change the gradient at {len(moving)} of the {len(heard)} call "
            f"sites that a gradient reached, most at {_name(first, [first.module], place)}: {name} would move it {much}. {_upgrade(moving)}"
        )
    return f"{text.rstrip('. ')}. {_warned(findings, place)}."


def _warned(findings: list[Finding], place: Place) -> str:
    groups = _grouped(findings)
    if not groups:
        return "No warnings"
    places = list(dict.fromkeys(_name(*_shared(group), place) for group in groups))
    return (
        f"Warnings: {len(groups)}, at {', '.join(places[:3])}{' and elsewhere' * (len(places) > 3)}"
    )


def _upgrade(moving: list[Finding]) -> str:
    """What the one change of convention that torch made would do here."""
    torchs = [
        f for f in moving if f.follows_torch and (f.moved["inclusive"], f.moved["joint"]) != (0, 0)
    ]
    if not torchs:
        return "torch 2.14, which changed the gradient of clamp, makes no difference."
    return f"torch 2.14, which changed the gradient of clamp, makes a difference at {len(torchs)} of them."


def _any(count: int) -> str:
    return "the only call site" if count == 1 else f"any of the {count} call sites"


def _name(f: Finding, modules: list[str], place: Place) -> str:
    where, inside = place(f.file, f.line), _listed([m for m in modules if m])
    return f"{where} ({f.function} in {inside})" if inside else f"{where} ({f.function})"


def _listed(modules: list[str]) -> str:
    """The first three, and how many more there are."""
    more = [f"{len(modules) - 3} more"] if len(modules) > 3 else []
    return " and ".join([", ".join(modules[:3]), *more])


def _grouped(findings: list[Finding]) -> list[Group]:
    """The warnings, each once for a line of code, whose findings are the modules that run it: a layer that
    a model has fifty times is one line to mend. The most important finding is the first of its group."""
    groups: dict[tuple[object, ...], Group] = {}
    for f in findings:
        for w in f.warnings:
            which = (w.evidence.get(k) for k in ("bound", "dtype", "function", "file", "line"))
            key = (f.file, f.line, f.function, w.name, *which)
            groups.setdefault(key, []).append((f, w))
    return list(groups.values())


def _shared(group: Group) -> tuple[Finding, list[str]]:
    """The first finding of a group, and the modules of all."""
    return group[0][0], list(dict.fromkeys(f.module for f, _ in group))


def _warnings(findings: list[Finding], place: Place) -> list[str]:
    lines = []
    for group in _grouped(findings):
        first, modules = _shared(group)
        warning = group[0][1]
        message = warning.message
        if "file" in warning.evidence:
            at = warning.evidence["file"], warning.evidence["line"]
            message = message.replace("{}:{}".format(*at), place(*at))
        if any(w.message != warning.message for _, w in group):
            message += f" (in {first.module or 'the first'}, one of {len(group)})"
        lines += ["", f"{_name(first, modules, place)}: {warning.name}"]
        lines += textwrap.wrap(
            f"{message}. {warning.remedy}", WIDTH, initial_indent="  ", subsequent_indent="  "
        )
    return lines


def _table(findings: list[Finding], place: Place) -> str:
    rows = [COLUMNS, *(cells(f, place) for f in findings)]
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = (
        "  ".join(
            cell.ljust(width) if name in LEFT else cell.rjust(width)
            for name, cell, width in zip(COLUMNS, row, widths)
        ).rstrip()
        for row in rows
    )
    return "\n".join(lines)


def cells(f: Finding, place: Place) -> tuple[str, ...]:
    """A finding as text, in the order of COLUMNS."""

    def share(count: int | None) -> str:
        return "" if count is None else f"{count / max(f.elements, 1):.2%}"

    def moved(convention: str) -> str:
        value = f.moved.get(convention, "")
        return value if isinstance(value, str) else "from 0" if value is None else f"{value:.2g}"

    dead = None if f.dead is None else f.dead * f.calls
    return (
        *(f.function, place(f.file, f.line), f.module, f.gradient),
        *(", ".join(f.dtypes), _bounds(f), f"{f.elements:,}"),
        *map(share, (f.at_bound, f.beyond, f.nan, dead)),
        *map(moved, EXACT),
    )


def _bounds(f: Finding) -> str:
    """[lower, upper], or how many pairs there are."""
    if len(f.bounds) > 2:
        return f"{len(f.bounds)}{' or more' * (len(f.bounds) == MOST_BOUNDS)} pairs"
    return " ".join(f"[{lo}, {hi}]" for lo, hi in f.bounds)


def _notes(findings: list[Finding], skipped: Counter[str], every: int) -> list[str]:
    """What the reader of this table has to know, and no more."""
    notes = []
    if any(f.moved for f in findings):
        notes.append(
            "Columns of conventions: how far the gradient that the call returns would move, as the norm of "
            "the difference over the norm. Its effect further back is not followed."
        )
    if any(not f.moved for f in findings):
        notes.append("Blank there: nothing was differentiated, or no gradient arrived.")
    if any(None in f.moved.values() for f in findings):
        notes.append("from 0: the gradient is 0 now, and would not be under that convention.")
    if any(f.dead for f in findings):
        notes.append("dead: elements that were inside their bounds in no call.")
    if any(f.dead is None for f in findings):
        notes.append("dead is blank where shapes changed from call to call, or memory ran out.")
    if every > 1:
        notes.append(f"Examined: one in {every} calls of each call site, including the first.")
    if skipped:
        reasons = ", ".join(f"{count} ({reason})" for reason, count in skipped.items())
        notes.append(f"Calls not examined: {reasons}.")
    return notes
