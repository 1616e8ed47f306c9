"""A report as people read it: a sentence, the warnings, a table, and what its blanks mean."""

import math
import textwrap
from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

from clampgrad._contract.table import EXACT
from clampgrad._contract.words import any_of, counted, out_of
from clampgrad._tools.audit.finding import RELEASES, Finding
from clampgrad._tools.audit.lint import Diagnostic, remedy
from clampgrad._tools.audit.sites import MOST_BOUNDS
from clampgrad._tools.tables import PROSE, Table, prose

Place: TypeAlias = Callable[[str, int], str]
Group: TypeAlias = list[Finding]

LEFT = ("call", "where", "module", "gradient", "dtype", "bounds")
COUNTS = ("elements", "at bound", "beyond", "NaN", "dead")
COLUMNS = (*LEFT, *COUNTS, *EXACT)

SITE = "call site"
DECIDED = "The release of PyTorch decides the gradient here:"
NOT_DECIDED = "No release of PyTorch changed the gradient here, as far as gradients arrived:"


def text(
    findings: list[Finding], skipped: Counter[str], every: int, place: Place, width: int | None
) -> str:
    """The whole report, in lines of at most `width` characters if there is a width."""
    most = min(width or PROSE, PROSE)
    parts = [*textwrap.wrap(summary(findings, place), most)]
    for heading, *lines in _warnings(findings, place):
        parts += ["", *textwrap.wrap(heading, most)]
        for line in lines:
            parts += textwrap.wrap(line, most, initial_indent="  ", subsequent_indent="    ")
    for table in _tables(findings, place):
        parts += ["", table.text(width)]
    lines = [line for note in _notes(findings, skipped, every) for line in prose(note, width)]
    return "\n".join([*parts, "", *lines] if lines else parts)


def summary(findings: list[Finding], place: Place) -> str:
    """Says what the release of PyTorch decides, then what another convention
    would change; and the warnings."""
    if not findings:
        return "No call of the clamp family was seen."
    heard = [f for f in findings if f.moved]
    if not heard:
        return (
            f"No gradient reached {any_of(len(findings), SITE)}: positions were counted, but what "
            "a convention would change is unknown."
        )
    decided = [f for f in heard if f.by_release[0]]
    others = [f for f in heard if f.farthest[0] and f not in decided]
    parts = []
    if decided:
        first = max(decided, key=lambda f: f.by_release[0])
        far, name = first.by_release
        parts.append(
            "The release of PyTorch decides the gradient at "
            f"{out_of(len(decided), len(heard), SITE)} that a gradient reached, most at "
            f"{_name(first, [first.module], place)}: {name}, the gradient {RELEASES[name]}, would "
            f"{_instead(first, name) or f'move it {_much(far)}'}"
        )
    if others:
        first = max(others, key=lambda f: f.farthest[0])
        far, name = first.farthest
        where = f"{len(others)} more" if decided else out_of(len(others), len(heard), SITE)
        parts.append(
            f"No release of PyTorch changed the gradient at {where}, where another exact "
            f"convention would, most at {_name(first, [first.module], place)}: {name} would move "
            f"it {_much(far)}"
        )
    if not parts:
        parts.append(
            f"No other exact convention would change the gradient at {any_of(len(heard), SITE)} "
            "that a gradient reached"
        )
    return "".join(f"{part.rstrip('. ')}. " for part in parts) + f"{_warned(findings, place)}."


def _much(far: float) -> str:
    return "away from 0" if far == math.inf else f"by {far:.2g} times its norm"


def _instead(f: Finding, name: str) -> str:
    """How a convention would treat infinite and NaN gradients differently from the current one."""
    count = f.not_finite[name]
    verb = "pass on" if name == "inclusive" else "block"
    return f"{verb} {counted(count, 'infinite or NaN gradient')}" if count else ""


def _warned(findings: list[Finding], place: Place) -> str:
    groups = _grouped(findings)
    if not groups:
        return "No warnings"
    places = [_where(group, place) for group in groups]
    count = sum(len(_warnings_of(group)) for group in groups)
    return f"Warnings: {count}, at {', '.join(places[:3])}{' and elsewhere' * (len(places) > 3)}"


def _name(f: Finding, modules: list[str], place: Place) -> str:
    where, inside = place(f.file, f.line), _listed([m for m in modules if m])
    return f"{where} ({f.function} in {inside})" if inside else f"{where} ({f.function})"


def _listed(modules: list[str]) -> str:
    """The first three, and how many more there are."""
    more = [f"{len(modules) - 3} more"] if len(modules) > 3 else []
    return " and ".join([", ".join(modules[:3]), *more])


def _grouped(findings: list[Finding]) -> list[Group]:
    """The findings with warnings, by line of code: a layer that a model has fifty times is one line
    to mend. The most important finding is the first of its group."""
    groups: dict[tuple[object, ...], Group] = {}
    for f in findings:
        if f.warnings:
            groups.setdefault((f.file, f.line, f.function), []).append(f)
    return list(groups.values())


def _where(group: Group, place: Place) -> str:
    return _name(group[0], list(dict.fromkeys(f.module for f in group)), place)


def _warnings_of(group: Group) -> list[list[tuple[Finding, Diagnostic]]]:
    """The warnings of a line, each with the findings that have it."""
    found: dict[tuple[object, ...], list[tuple[Finding, Diagnostic]]] = {}
    for f in group:
        for w in f.warnings:
            which = (
                w.evidence.get(k) for k in ("bound", "dtype", "function", "file", "line", "node")
            )
            found.setdefault((w.name, *which), []).append((f, w))
    return list(found.values())


def _warnings(findings: list[Finding], place: Place) -> list[list[str]]:
    """For every line with warnings: where it is, what is wrong, and the advice."""
    told = []
    for group in _grouped(findings):
        lines = [f"{_where(group, place)}:"]
        for same in _warnings_of(group):
            f, warning = same[0]
            message = warning.message
            if "file" in warning.evidence:
                at = warning.evidence["file"], warning.evidence["line"]
                message = message.replace("{}:{}".format(*at), place(*at))
            if any(w.message != warning.message for _, w in same):
                message += f" (in {f.module or 'the first'}, one of {len(same)})"
            lines.append(f"{warning.name}: {message}.")
        every = [w for f in group for w in f.warnings]
        told.append([*lines, f"Advice: {remedy(every, group[0].function, group[0].file)}"])
    return told


def _tables(findings: list[Finding], place: Place) -> list[Table]:
    """A table of the sites that the release decides, and one of the others."""
    tables = []
    for title, decided in ((DECIDED, True), (NOT_DECIDED, False)):
        table = Table(COLUMNS, LEFT, title, names=2)
        for f in findings:
            if bool(f.by_release[0]) == decided:
                table.add_row(*cells(f, place))
        if table.rows:
            tables.append(table)
    return tables


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
    """Notes that explain the blanks and the columns of the table."""
    notes = []
    if any(f.moved for f in findings):
        notes.append(
            "Columns of conventions: how far the gradient that the call returns would move, as "
            "the norm of the difference over the norm. Its effect further back is not followed."
        )
    if any(not f.moved for f in findings):
        notes.append("Blank there: nothing was differentiated, or no gradient arrived.")
    if any(None in f.moved.values() for f in findings):
        notes.append("from 0: the gradient is 0 now, and would not be under that convention.")
    if any(f.dead for f in findings):
        notes.append("dead: elements that were never inside their bounds.")
    if any(f.dead is None for f in findings):
        notes.append("dead is blank where shapes changed from call to call, or memory ran out.")
    if every > 1:
        notes.append(f"Examined: one in {every} calls of each call site, including the first.")
    if skipped:
        reasons = ", ".join(f"{count} ({reason})" for reason, count in skipped.items())
        notes.append(f"Calls not examined: {reasons}.")
    return notes
