"""What was found, for people: one short line for each thing. `--json` has all of it."""

import textwrap
from collections.abc import Iterable

from .run import CODE, GRADIENTS, SAVED

WIDTH = 98
MORE = " ..."


def told(result: dict) -> str:
    lines = [*listed("patches", result["patches"]), *listed(CODE, result[CODE])]
    changed = points(result[GRADIENTS])
    lines += [f"{GRADIENTS}:{'' if changed else ' none'}", *map(indented, changed)]
    for key in (SAVED, "tests and documentation", "not proved"):
        lines += [f"{key}:", *map(indented, result[key])] if result[key] else []
    failures = by_operator(result["failures"])
    return "\n".join(lines + (failures or [f"All of it holds: {result['convention']}."]))


def listed(name: str, words: Iterable[str]) -> list[str]:
    return textwrap.wrap(f"{name}: {', '.join(words) or 'none'}", WIDTH, subsequent_indent="  ")


def points(changes: list[str]) -> list[str]:
    """How many points of the table changed for each operator, over all modes."""
    found: dict[str, list[tuple[int, int]]] = {}
    for line in changes:
        where, counts = line.split(": ")
        changed, of = map(int, counts.split(" of "))
        found.setdefault(where.rpartition(", ")[0], []).append((changed, of))
    return [
        f"{operator}: {sum(n for n, _ in modes):,} of {sum(of for _, of in modes):,} points "
        f"in {len(modes)} {'way' if len(modes) == 1 else 'ways'} to differentiate or call"
        for operator, modes in found.items()
    ]


def by_operator(failures: list[str]) -> list[str]:
    """One for each operator and kind of bounds, an example, and in how many more modes it is so."""
    groups: dict[str, list[str]] = {}
    for line in failures:
        what, _, detail = line.partition(": ")
        operator, _, _ = what.rpartition(", ")
        is_of_a_mode = detail and ", " in operator
        groups.setdefault(operator if is_of_a_mode else what, []).append(line)
    return [short(first, len(others)) for first, *others in groups.values()]


def indented(line: str) -> str:
    return f"  {short(line)}"


def short(line: str, others: int = 0) -> str:
    """The first line of it, as far as there is room."""
    more = f" (and in {others} more {'way' if others == 1 else 'ways'})" if others else ""
    return textwrap.shorten(line.splitlines()[0], WIDTH - len(more), placeholder=MORE) + more
