"""What was found, for people: one short line for each thing. `--json` has all of it."""

from collections import defaultdict
from textwrap import shorten, wrap

from .run import CODE, GRADIENTS, SAVED

WIDTH = 98


def told(result: dict) -> str:
    lines = []
    for key in ("patches", CODE):
        text = f"{key}: {', '.join(result[key]) or 'none'}"
        lines += wrap(text, WIDTH, subsequent_indent="  ")
    changed = points(result[GRADIENTS])
    lines += [f"{GRADIENTS}:{'' if changed else ' none'}", *map(indented, changed)]
    for key in (SAVED, "tests and documentation", "not proved"):
        lines += [f"{key}:", *map(indented, result[key])] if result[key] else []
    failures = by_operator(result["failures"])
    return "\n".join(lines + (failures or [f"All of it holds: {result['convention']}."]))


def ways(n: int, word: str = "") -> str:
    return f"{n} {word}{'way' if n == 1 else 'ways'}"


def points(changes: list[str]) -> list[str]:
    """How many points of the table changed for each operator, over all modes."""
    found = defaultdict(list)
    for line in changes:
        where, counts = line.split(": ")
        found[where.rpartition(", ")[0]].append(tuple(map(int, counts.split(" of "))))
    return [
        f"{operator}: {sum(n for n, _ in modes):,} of {sum(of for _, of in modes):,} points "
        f"in {ways(len(modes))} to differentiate or call"
        for operator, modes in found.items()
    ]


def by_operator(failures: list[str]) -> list[str]:
    """One for each operator and kind of bounds, an example, and in how many more modes it is so."""
    groups = defaultdict(list)
    for line in failures:
        what, _, detail = line.partition(": ")
        operator, _, _ = what.rpartition(", ")
        groups[operator if detail and ", " in operator else what].append(line)
    return [short(first, len(others)) for first, *others in groups.values()]


def indented(line: str) -> str:
    return f"  {short(line)}"


def short(line: str, others: int = 0) -> str:
    """The first line of it, as far as there is room."""
    more = f" (and in {ways(others, 'more ')})" if others else ""
    return shorten(line.splitlines()[0], WIDTH - len(more), placeholder=" ...") + more
