"""Writes a report for people: a summary, the warnings, a table, and what its blanks mean."""

import math
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

import torch

from clampgrad._contract.changes import CHANGES, COMPARED, OF_CLAMPS, minor
from clampgrad._contract.table import EXACT
from clampgrad._contract.words import any_of, format_count, out_of
from clampgrad._tools.audit.finding import RELEASES, Finding
from clampgrad._tools.audit.lint import Diagnostic, write_remedy
from clampgrad._tools.audit.sites import MOST_BOUNDS
from clampgrad._tools.audit.suspects import Suspect
from clampgrad._tools.tables import PROSE, Table, prose

PlaceFormat: TypeAlias = Callable[[str, int], str]
Group: TypeAlias = list[Finding]

TEXT_COLUMNS = ("call", "where", "module", "gradient", "dtype", "bounds")
COUNT_COLUMNS = ("elements", "at bound", "beyond", "NaN", "dead")
COLUMNS = (*TEXT_COLUMNS, *COUNT_COLUMNS, *EXACT)

SITE = "call site"
DECIDED = "The gradient changed between {} and {}:"
NOT_DECIDED = "It did not change here between {} and {}, as far as gradients arrived:"
SUSPECTED = "Other calls that may differ between {} and {}:"
MOST_NAMED = 3  # in a sentence


class Contents(NamedTuple):
    """What a report says."""

    findings: list[Finding]
    suspects: list[Suspect]
    unknown: Counter[str]  # calls that were not examined and may have changed, by reason
    compared: tuple[str, ...]
    place: PlaceFormat

    def format_ends(self, text: str) -> str:
        """Returns a text with the first and the last release in place of {}."""
        return text.format(self.compared[0], self.compared[-1])


def format_report(contents: Contents, skipped: Counter[str], every: int, width: int | None) -> str:
    """Returns the whole report, in lines of at most `width` characters if there is a width."""
    line_width = min(width or PROSE, PROSE)
    parts = [*textwrap.wrap(summary(contents), line_width)]
    sections = [
        *_warnings_sections(contents.findings, contents.place),
        *_suspects_section(contents),
    ]
    for heading, *lines in sections:
        parts += ["", *textwrap.wrap(heading, line_width)]
        for line in lines:
            parts += textwrap.wrap(line, line_width, initial_indent="  ", subsequent_indent="    ")
    for table in _make_tables(contents):
        parts += ["", table.text(width)]
    notes = _write_notes(contents.findings, skipped, every)
    lines = [line for note in notes for line in prose(note, width)]
    return "\n".join([*parts, "", *lines] if lines else parts)


def summary(contents: Contents) -> str:
    """Says what the releases of PyTorch changed, then what another convention would change, then
    where the warnings are."""
    differentiated = [f for f in contents.findings if f.moved]
    decided = [f for f in differentiated if f.by_release[0]]
    sentences = [
        _first_sentence(contents, differentiated, decided),
        *_suspects_sentence(contents, bool(decided)),
    ]
    if decided:
        first = max(decided, key=lambda f: f.by_release[0])
        far, name = first.by_release
        effect = _describe_not_finite(first, name) or f"move it {_describe_distance(far)}"
        sentences.append(
            f"Most at {_describe_place(first, [first.module], contents.place)}: {name}, the gradient "
            f"{RELEASES[name]}, would {effect}"
        )
    moved = [f for f in differentiated if f.farthest[0] and f not in decided]
    if moved:
        first = max(moved, key=lambda f: f.farthest[0])
        far, name = first.farthest
        where = f"{len(moved)} more" if decided else out_of(len(moved), len(differentiated), SITE)
        place = _describe_place(first, [first.module], contents.place)
        sentences.append(
            f"Another exact convention would change the gradient at {where}, most at "
            f"{place}: {name} would move it {_describe_distance(far)}"
        )
    elif differentiated and not decided:
        where = any_of(len(differentiated), SITE)
        sentences.append(
            f"No other exact convention would change the gradient at {where} that a gradient reached"
        )
    if minor(torch.__version__) not in COMPARED:
        sentences.append(f"PyTorch {minor(torch.__version__)}, which runs here, was not compared")
    if contents.findings:
        sentences.append(_warnings_sentence(contents.findings, contents.place))
    return " ".join(f"{sentence.rstrip('. ')}." for sentence in sentences)


def _first_sentence(
    contents: Contents, differentiated: list[Finding], decided: list[Finding]
) -> str:
    """Says what changed in the clamp family, and for how many calls that is not known."""
    between = contents.format_ends("Between {} and {}")
    gap = ""
    if contents.unknown:
        reasons = ", ".join(f"{reason} {count}" for reason, count in contents.unknown.items())
        total = format_count(contents.unknown.total(), "call")
        gap = f"{total} went unexamined ({reasons})"
    if not CHANGES[OF_CLAMPS].is_between(contents.compared):
        at_nan = CHANGES["extrema-nan"].is_between(contents.compared)
        but = ", but for fmax and fmin at NaN" if at_nan else ""
        return f"{between} the gradient of clamp and its family is the same{but}"
    if decided:
        calls = _join_first([_describe_call(f, contents.place) for f in decided], "; ")
        sentence = (
            f"{between} the gradient of {format_count(len(decided), 'call')} changed: {calls}; "
            f"{_describe_pin(decided)}"
        )
    elif differentiated:
        where = any_of(len(differentiated), "call")
        sentence = f"{between} the gradient did not change at {where} that a gradient reached"
    elif contents.findings and not any(f.recorded for f in contents.findings):
        where = any_of(len(contents.findings), "call")
        sentence = f"{between} the gradient did not change: none was recorded at {where}"
    elif contents.findings:
        sentence = (
            f"No gradient reached {any_of(len(contents.findings), SITE)}: positions were counted, but "
            "what a release or a convention would change is unknown"
        )
    elif gap:
        return f"Whether the gradient changed {between.lower()} is unknown: {gap}"
    else:
        return "No call of the clamp family was seen"
    return f"{sentence}; {gap}, and may have changed" if gap else sentence


def _describe_pin(decided: list[Finding]) -> str:
    lists = sum(f.is_of_list for f in decided)
    if lists == len(decided):
        return "no pin reaches a list of Tensors"
    which = {1: "it", 2: "both"}.get(len(decided), "all of them")
    return "a pin restores all but those of lists" if lists else f"a pin restores {which}"


def _suspects_sentence(contents: Contents, is_further: bool) -> Iterator[str]:
    """Names the other calls that a release may have changed, if there are any."""
    groups = _group_by_place(contents.suspects)
    if groups:
        count = format_count(len(groups), "other call" if is_further else "call")
        names = _join_first([_describe_suspects(group, contents.place) for group in groups], "; ")
        yield f"{count} may differ: {names}"


def _group_by_place(suspects: list[Suspect]) -> list[list[Suspect]]:
    """Groups the suspects by place in the code."""
    groups: dict[tuple[object, ...], list[Suspect]] = {}
    for s in suspects:
        groups.setdefault((s.file, s.line, s.function), []).append(s)
    return list(groups.values())


def _describe_suspects(group: list[Suspect], place: PlaceFormat) -> str:
    first = group[0]
    what = " and ".join(dict.fromkeys(s.what for s in group))
    return (
        f"{first.function} at {place(first.file, first.line)} ({what}, {_describe_releases(first)})"
    )


def _describe_releases(s: Suspect) -> str:
    when = f"in {s.since} alone" if s.until else f"since {s.since}"
    return f"{when} an error" if s.kind == "error since" else when


def _suspects_section(contents: Contents) -> list[list[str]]:
    """Lists every suspect, and under which condition it differs."""
    lines = []
    for s in contents.suspects:
        call = _add_module(f"{s.function} at {contents.place(s.file, s.line)}", s.module)
        observation = "so it was" if s.met else "which could not be seen"
        condition = f" where {s.condition}; {observation}," if s.condition else ""
        lines.append(
            f"{call}: {s.what}, {_describe_releases(s)},{condition} in {format_count(s.calls, 'call')}."
        )
    return [[contents.format_ends(SUSPECTED), *lines]] if lines else []


def _describe_call(f: Finding, place: PlaceFormat) -> str:
    """Names a call in a sentence."""
    call = _add_module(f"{f.function} at {place(f.file, f.line)}", f.module)
    return f"{call}, through {f.through}" if f.through else call


def _add_module(call: str, module: str) -> str:
    return f"{call} in {module}" if module else call


def _describe_distance(far: float) -> str:
    return "away from 0" if far == math.inf else f"by {far:.2g} times its norm"


def _describe_not_finite(f: Finding, name: str) -> str:
    """Says how a convention would treat infinite and NaN gradients differently from the current
    one."""
    count = f.not_finite[name]
    verb = "pass on" if name == "inclusive" else "block"
    return f"{verb} {format_count(count, 'infinite or NaN gradient')}" if count else ""


def _warnings_sentence(findings: list[Finding], place: PlaceFormat) -> str:
    groups = _group_by_line(findings)
    if not groups:
        return "No warnings"
    places = [_describe_group(group, place) for group in groups]
    count = sum(len(_group_warnings(group)) for group in groups)
    return f"Warnings: {count}, at {', '.join(places[:3])}{' and elsewhere' * (len(places) > 3)}"


def _describe_place(f: Finding, modules: list[str], place: PlaceFormat) -> str:
    line, inside = place(f.file, f.line), _join_first([m for m in modules if m], ", ")
    function = f"{f.function}, through {f.through}" if f.through else f.function
    return f"{line} ({function} in {inside})" if inside else f"{line} ({function})"


def _join_first(names: list[str], separator: str) -> str:
    """Joins the first three names, and says how many more there are."""
    rest = len(names) - MOST_NAMED
    more = [f"{rest} more"] if rest > 0 else []
    return " and ".join([separator.join(names[:MOST_NAMED]), *more])


def _group_by_line(findings: list[Finding]) -> list[Group]:
    """Groups the findings with warnings by line of code, the most important first: a layer that a
    model has fifty times is one line to mend."""
    groups: dict[tuple[object, ...], Group] = {}
    for f in findings:
        if f.warnings:
            groups.setdefault((f.file, f.line, f.function, f.through), []).append(f)
    return list(groups.values())


def _describe_group(group: Group, place: PlaceFormat) -> str:
    return _describe_place(group[0], list(dict.fromkeys(f.module for f in group)), place)


def _group_warnings(group: Group) -> list[list[tuple[Finding, Diagnostic]]]:
    """Groups the warnings of a line: each group is one warning, with the findings that have it."""
    groups: dict[tuple[object, ...], list[tuple[Finding, Diagnostic]]] = {}
    for f in group:
        for w in f.warnings:
            which = (
                w.evidence.get(k) for k in ("bound", "dtype", "function", "file", "line", "node")
            )
            groups.setdefault((w.name, *which), []).append((f, w))
    return list(groups.values())


def _warnings_sections(findings: list[Finding], place: PlaceFormat) -> list[list[str]]:
    """Returns a section for every line with warnings: where it is, what is wrong, and advice."""
    sections = []
    for group in _group_by_line(findings):
        lines = [f"{_describe_group(group, place)}:"]
        for same in _group_warnings(group):
            f, warning = same[0]
            message = warning.message
            if "file" in warning.evidence:
                file, line = warning.evidence["file"], warning.evidence["line"]
                message = message.replace(f"{file}:{line}", place(file, line))
            if any(w.message != warning.message for _, w in same):
                message += f" (in {f.module or 'the first'}, one of {len(same)})"
            lines.append(f"{warning.name}: {message}.")
        first, every = group[0], [w for f in group for w in f.warnings]
        advice = write_remedy(every, first.function, first.through, first.file)
        sections.append([*lines, f"Advice: {advice}"])
    return sections


def _make_tables(contents: Contents) -> list[Table]:
    """Makes a table of the sites that the release decides, and one of the others."""
    tables = []
    for title, decided in ((DECIDED, True), (NOT_DECIDED, False)):
        table = Table(COLUMNS, TEXT_COLUMNS, contents.format_ends(title), names=2)
        for f in contents.findings:
            if bool(f.by_release[0]) == decided:
                table.add_row(*make_cells(f, contents.place))
        if table.rows:
            tables.append(table)
    return tables


def make_cells(f: Finding, place: PlaceFormat) -> tuple[str, ...]:
    """Returns a finding as text, in the order of COLUMNS."""

    def format_share(count: int | None) -> str:
        return "" if count is None else f"{count / max(f.elements, 1):.2%}"

    def format_distance(convention: str) -> str:
        value = f.moved.get(convention, "")
        return value if isinstance(value, str) else "from 0" if value is None else f"{value:.2g}"

    dead = None if f.dead is None else f.dead * f.calls
    return (
        f"{f.function} ({f.through})" if f.through else f.function,
        *(place(f.file, f.line), f.module, f.gradient),
        *(", ".join(f.dtypes), _format_bounds(f), f"{f.elements:,}"),
        *map(format_share, (f.at_bound, f.beyond, f.nan, dead)),
        *map(format_distance, EXACT),
    )


def _format_bounds(f: Finding) -> str:
    """Returns pairs as [lower, upper], or how many there are."""
    if len(f.bounds) > 2:
        return f"{len(f.bounds)}{' or more' * (len(f.bounds) == MOST_BOUNDS)} pairs"
    return " ".join(f"[{lo}, {hi}]" for lo, hi in f.bounds)


def _write_notes(findings: list[Finding], skipped: Counter[str], every: int) -> list[str]:
    """Explains the blanks and the columns of the table."""
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
