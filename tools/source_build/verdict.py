"""What does not hold of what a whole run found."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from brought import is_of, new_tests
from record import Record
from series import ROOT, named

# What `verify` found in wheels: a build must show the same.
VERIFIED = json.loads((ROOT / "docs" / "verified.json").read_text())


def judge(record: Record, series: Sequence[str]) -> list[str]:
    return [
        *gradients(record, series),
        *tests(record, series),
        *controls(record, series),
        *package(record),
    ]


def gradients(record: Record, series: Sequence[str]) -> Iterator[str]:
    for state in (*series, "undone"):
        found = record.found(state, "gradients")
        for line in found["failures"]:
            yield f"{state}: {line}"
        in_wheels = {r["points that changed"] for r in VERIFIED if r["series"] == state}
        if (
            in_wheels
            and found["as verify counts them"] not in in_wheels
            and not record.data["quick"]
        ):
            yield (
                f"{state}: {found['as verify counts them']} points changed; in wheels, verify counted "
                f"{', '.join(map(str, sorted(in_wheels)))}"
            )


def tests(record: Record, series: Sequence[str]) -> Iterator[str]:
    """A test may differ from stock's result only if the series brings it, and it passes; or if the series
    says that it fails, as one of those then must."""
    for state in (*series, "undone"):
        fails = named(state).fails if state in series else ()
        failed = False
        yield from crashes(record, state)
        for test, before, after in differences(record, state):
            file, _, name = test.partition(": ")
            name = name.rpartition(".")[2]
            if (before, after) == ("ok", "failed") and is_one_of(fails, file, name):
                failed = True
            elif not (before == "not there" and after in ("ok", "skipped") and is_of(state, name)):
                yield f"{state}: {test} was {before} and is {after}"
        if fails and not failed:
            yield f"{state}: none of the tests fails that must, as its series says: {', '.join(fails)}"


def is_one_of(fails: Sequence[str], file: str, name: str) -> bool:
    pairs = (known.split(":") for known in fails)
    return any(file == where and word in name for where, word in pairs)


def crashes(record: Record, state: str) -> Iterator[str]:
    """Once may be chance, as that of test_profiler_propagation is; the report names it all the same."""
    stock, mine = (record.found(s, "tests")["files"] for s in ("stock", state))
    for file, run in mine.items():
        for test, times in run["crashes"].items():
            if times > 1 and test not in stock.get(file, {}).get("crashes", {}):
                yield f"{state}: {file}: {test} ended the process {times} times, and never on stock"


def differences(record: Record, state: str) -> list[tuple[str, str, str]]:
    """(test, its result on stock, its result in this state), where they differ."""
    found = []
    none: dict[str, Any] = {"results": {}}
    stock, mine = (record.found(s, "tests")["files"] for s in ("stock", state))
    for file in mine:
        before, after = (files.get(file, none)["results"] for files in (stock, mine))
        for test in sorted(before.keys() | after.keys()):
            pair = before.get(test, "not there"), after.get(test, "not there")
            if pair[0] != pair[1]:
                found.append((f"{file}: {test}", *pair))
    return found


def controls(record: Record, series: Sequence[str]) -> Iterator[str]:
    """Tests that pass without the patch prove nothing of it, nor do those that break off before they
    compare a gradient."""
    found = record.found("stock", "controls")["files"]
    for name in (s for s in series if not named(s).claim.unchanged):
        runs = {key: run for key, run in found.items() if key.startswith(f"{name}: ")}
        results = {test: r for run in runs.values() for test, r in run["results"].items()}
        errors = [f"{key}: {run['error']}" for key, run in runs.items() if run["error"]]
        broken = [t for t, r in results.items() if r in ("error", "crashed", "no end")]
        if errors or broken:
            yield f"{name}: without it these break off, which shows no gradient: {', '.join(errors + broken)}"
        elif results and "failed" not in results.values():
            yield f"{name}: its tests do not fail without it: {', '.join(results)}"
        elif not results and new_tests(name):
            yield f"{name}: none of its tests applies to this tree, so nothing of upstream's shows it"


def package(record: Record) -> Iterator[str]:
    for state, steps in record.asked.items():
        found = steps["package"]
        for name, wanted in (("inclusive", 1.0), ("joint", 0.0), ("half", 0.5)):
            for call in (f"under pin {name}", f"clampgrad.clamp, {name}"):
                if found[call] != wanted:
                    yield f"{state}: {call}: {found[call]}, not {wanted}"
        if found["survey"] != found["clamp(x, 0, 1) at 0"]:
            yield f"{state}: the survey measures {found['survey']}"
        at_bound = record.found("stock", "package")["clamp(x, 0, 1) at 0"]
        if (found["patched"] is not None) != (found["clamp(x, 0, 1) at 0"] != at_bound):
            yield f"{state}: the audit says of this torch: {found['patched']}"
