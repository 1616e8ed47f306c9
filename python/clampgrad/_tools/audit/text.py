"""A report as people read it: a sentence, the warnings, a table, and what its blanks mean."""

import math
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

import torch

from clampgrad._contract.changes import CHANGES, COMPARED, OF_CLAMPS, minor
from clampgrad._contract.table import EXACT
from clampgrad._contract.words import any_of, counted, out_of
from clampgrad._tools.audit.finding import RELEASES, Finding
from clampgrad._tools.audit.lint import Diagnostic, remedy
from clampgrad._tools.audit.sites import MOST_BOUNDS
from clampgrad._tools.audit.suspects import Suspect
from clampgrad._tools.tables import PROSE, Table, prose

Place: TypeAlias = Callable[[str, int], str]
Group: TypeAlias = list[Finding]

LEFT = ("call", "where", "module", "gradient", "dtype", "bounds")
COUNTS = ("elements", "at bound", "beyond", "NaN", "dead")
COLUMNS = (*LEFT, *COUNTS, *EXACT)

SITE = "call site"
DECIDED = "The gradient changed between {} and {}:"
NOT_DECIDED = "It did not change here between {} and {}, as far as gradients arrived:"
SUSPECTED = "Other calls that may differ between {} and {}:"
MOST_NAMED = 3  # in a sentence


class Seen(NamedTuple):
    """What an audit saw."""

    findings: list[Finding]
    suspects: list[Suspect]
    unknown: Counter[str]  # calls that were not examined and may have changed, by reason
    compared: tuple[str, ...]
    place: Place

    def ends(self, text: str) -> str:
        """A text with the first and the last release."""
        return text.format(self.compared[0], self.compared[-1])


def text(seen: Seen, skipped: Counter[str], every: int, width: int | None) -> str:
    """The whole report, in lines of at most `width` characters if there is a width."""
    most = min(width or PROSE, PROSE)
    parts = [*textwrap.wrap(summary(seen), most)]
    sections = [*_warnings(seen.findings, seen.place), *_suspected(seen)]
    for heading, *lines in sections:
        parts += ["", *textwrap.wrap(heading, most)]
        for line in lines:
            parts += textwrap.wrap(line, most, initial_indent="  ", subsequent_indent="    ")
    for table in _tables(seen):
        parts += ["", table.text(width)]
    notes = _notes(seen.findings, skipped, every)
    lines = [line for note in notes for line in prose(note, width)]
    return "\n".join([*parts, "", *lines] if lines else parts)


def summary(seen: Seen) -> str:
    """Says what the releases of PyTorch changed, then what another convention would change; and
    the warnings."""
    heard = [f for f in seen.findings if f.moved]
    decided = [f for f in heard if f.by_release[0]]
    told = [_answer(seen, heard, decided), *_others(seen, bool(decided))]
    if decided:
        first = max(decided, key=lambda f: f.by_release[0])
        far, name = first.by_release
        told.append(
            f"Most at {_name(first, [first.module], seen.place)}: {name}, the gradient "
            f"{RELEASES[name]}, would {_instead(first, name) or f'move it {_much(far)}'}"
        )
    moved = [f for f in heard if f.farthest[0] and f not in decided]
    if moved:
        first = max(moved, key=lambda f: f.farthest[0])
        far, name = first.farthest
        where = f"{len(moved)} more" if decided else out_of(len(moved), len(heard), SITE)
        told.append(
            f"Another exact convention would change the gradient at {where}, most at "
            f"{_name(first, [first.module], seen.place)}: {name} would move it {_much(far)}"
        )
    elif heard and not decided:
        told.append(
            f"No other exact convention would change the gradient at {any_of(len(heard), SITE)} "
            "that a gradient reached"
        )
    if minor(torch.__version__) not in COMPARED:
        told.append(f"PyTorch {minor(torch.__version__)}, which runs here, was not compared")
    if seen.findings:
        told.append(_warned(seen.findings, seen.place))
    return " ".join(f"{sentence.rstrip('. ')}." for sentence in told)


def _answer(seen: Seen, heard: list[Finding], decided: list[Finding]) -> str:
    """The first sentence: what changed in the clamp family, and where that is not known."""
    between = seen.ends("Between {} and {}")
    gap = ""
    if seen.unknown:
        reasons = ", ".join(f"{reason} {count}" for reason, count in seen.unknown.items())
        total = counted(seen.unknown.total(), "call")
        gap = f"{total} went unexamined ({reasons})"
    if not CHANGES[OF_CLAMPS].is_between(seen.compared):
        at_nan = CHANGES["extrema-nan"].is_between(seen.compared)
        but = ", but for fmax and fmin at NaN" if at_nan else ""
        return f"{between} the gradient of clamp and its family is the same{but}"
    if decided:
        said = (
            f"{between} the gradient of {counted(len(decided), 'call')} changed: "
            f"{_listed([_call(f, seen.place) for f in decided], '; ')}; {_restored(decided)}"
        )
    elif heard:
        where = any_of(len(heard), "call")
        said = f"{between} the gradient did not change at {where} that a gradient reached"
    elif seen.findings and not any(f.recorded for f in seen.findings):
        where = any_of(len(seen.findings), "call")
        said = f"{between} the gradient did not change: none was recorded at {where}"
    elif seen.findings:
        said = (
            f"No gradient reached {any_of(len(seen.findings), SITE)}: positions were counted, but "
            "what a release or a convention would change is unknown"
        )
    elif gap:
        return f"Whether the gradient changed {between.lower()} is unknown: {gap}"
    else:
        return "No call of the clamp family was seen"
    return f"{said}; {gap}, and may have changed" if gap else said


def _restored(decided: list[Finding]) -> str:
    lists = sum(f.is_of_list for f in decided)
    if lists == len(decided):
        return "no pin reaches a list of Tensors"
    which = {1: "it", 2: "both"}.get(len(decided), "all of them")
    return "a pin restores all but those of lists" if lists else f"a pin restores {which}"


def _others(seen: Seen, is_further: bool) -> Iterator[str]:
    """The other calls that a release may have changed."""
    groups = _places(seen.suspects)
    if groups:
        count = counted(len(groups), "other call" if is_further else "call")
        names = _listed([_suspect(group, seen.place) for group in groups], "; ")
        yield f"{count} may differ: {names}"


def _places(suspects: list[Suspect]) -> list[list[Suspect]]:
    """The suspects by place in the code."""
    groups: dict[tuple[object, ...], list[Suspect]] = {}
    for s in suspects:
        groups.setdefault((s.file, s.line, s.function), []).append(s)
    return list(groups.values())


def _suspect(group: list[Suspect], place: Place) -> str:
    first = group[0]
    what = " and ".join(dict.fromkeys(s.what for s in group))
    return f"{first.function} at {place(first.file, first.line)} ({what}, {_when(first)})"


def _when(s: Suspect) -> str:
    when = f"in {s.since} alone" if s.until else f"since {s.since}"
    return f"{when} an error" if s.kind == "error since" else when


def _suspected(seen: Seen) -> list[list[str]]:
    """Every suspect, and under which condition it differs."""
    lines = []
    for s in seen.suspects:
        where = _named(f"{s.function} at {seen.place(s.file, s.line)}", s.module)
        was = "so it was" if s.met else "which could not be seen"
        condition = f" where {s.condition}; {was}," if s.condition else ""
        lines.append(f"{where}: {s.what}, {_when(s)},{condition} in {counted(s.calls, 'call')}.")
    return [[seen.ends(SUSPECTED), *lines]] if lines else []


def _call(f: Finding, place: Place) -> str:
    """A call in a sentence."""
    where = _named(f"{f.function} at {place(f.file, f.line)}", f.module)
    return f"{where}, through {f.through}" if f.through else where


def _named(call: str, module: str) -> str:
    return f"{call} in {module}" if module else call


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
    where, inside = place(f.file, f.line), _listed([m for m in modules if m], ", ")
    function = f"{f.function}, through {f.through}" if f.through else f.function
    return f"{where} ({function} in {inside})" if inside else f"{where} ({function})"


def _listed(names: list[str], separator: str) -> str:
    """The first three, and how many more there are."""
    rest = len(names) - MOST_NAMED
    more = [f"{rest} more"] if rest > 0 else []
    return " and ".join([separator.join(names[:MOST_NAMED]), *more])


def _grouped(findings: list[Finding]) -> list[Group]:
    """The findings with warnings, by line of code: a layer that a model has fifty times is one line
    to mend. The most important finding is the first of its group."""
    groups: dict[tuple[object, ...], Group] = {}
    for f in findings:
        if f.warnings:
            groups.setdefault((f.file, f.line, f.function, f.through), []).append(f)
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
        first, every = group[0], [w for f in group for w in f.warnings]
        told.append([*lines, f"Advice: {remedy(every, first.function, first.through, first.file)}"])
    return told


def _tables(seen: Seen) -> list[Table]:
    """A table of the sites that the release decides, and one of the others."""
    tables = []
    for title, decided in ((DECIDED, True), (NOT_DECIDED, False)):
        table = Table(COLUMNS, LEFT, seen.ends(title), names=2)
        for f in seen.findings:
            if bool(f.by_release[0]) == decided:
                table.add_row(*cells(f, seen.place))
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
        f"{f.function} ({f.through})" if f.through else f.function,
        *(place(f.file, f.line), f.module, f.gradient),
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
