"""What a whole run says: what does not hold, and a summary for people."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from proofs import new_tests
from record import Record
from series import ROOT, Tree

# What `verify` found in wheels: a build must show the same.
VERIFIED = json.loads((ROOT / "docs" / "verified.json").read_text())


def judge(record: Record, tree: Tree, series: Sequence[str]) -> list[str]:
    return [
        *gradients(record, series),
        *tests(record, series),
        *controls(record, series),
        *package(record),
        *times(record),
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
    """A test may differ from stock's result only if the series brings it, and it passes."""
    for state in (*series, "undone"):
        brought = "|".join(new_tests(state)) if state in series else "$."  # else none
        # As upstream names what it makes of one test for each device and dtype.
        of_a_device = re.compile(rf"({brought})(_(cpu|cuda)(_\w+)?)?$")
        yield from crashes(record, state)
        for test, before, after in differences(record, state):
            is_new = before == "not there" and after in ("ok", "skipped")
            if not (is_new and of_a_device.match(method_of(test))):
                yield f"{state}: {test} was {before} and is {after}"


def crashes(record: Record, state: str) -> Iterator[str]:
    """Once may be chance, as that of test_profiler_propagation is; the report names it all the same."""
    stock, mine = (record.found(s, "tests")["files"] for s in ("stock", state))
    for file, run in mine.items():
        for test, times in run["crashes"].items():
            if times > 1 and test not in stock.get(file, {}).get("crashes", {}):
                yield f"{state}: {file}: {test} ended the process {times} times, and never on stock"


def method_of(test: str) -> str:
    return test.rpartition(".")[2]


def differences(record: Record, state: str) -> list[tuple[str, str, str]]:
    """(test, its result on stock, its result in this state), where they differ."""
    found = []
    none: dict[str, Any] = {"results": {}}
    stock, mine = (record.found(s, "tests")["files"] for s in ("stock", state))
    for file in stock | mine:
        before, after = (files.get(file, none)["results"] for files in (stock, mine))
        for test in sorted(before.keys() | after.keys()):
            pair = before.get(test, "not there"), after.get(test, "not there")
            if pair[0] != pair[1]:
                found.append((f"{file}: {test}", *pair))
    return found


def controls(record: Record, series: Sequence[str]) -> Iterator[str]:
    """Tests that pass without the patch prove nothing of it, nor do those that break off."""
    found = record.found("stock", "controls")["files"]
    for name in series:
        runs = [run for key, run in found.items() if key.startswith(f"{name}: ")]
        results = [result for run in runs for result in run["results"].values()]
        if not results and new_tests(name):
            yield f"{name}: none of its tests applies to this tree, so nothing of upstream's shows it"
        elif results and ("failed" not in results or "error" in results):
            yield f"{name}: its tests do not fail on stock as they should: {', '.join(results)}"


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


def times(record: Record) -> Iterator[str]:
    """Each state was timed with its own libraries, or the times are of another."""
    for state, rounds in (record.found("undone", "times") or {}).get("microseconds", {}).items():
        wanted = record.found(state, "package")["clamp(x, 0, 1) at 0"]
        if any(r["gradient at a bound"] != wanted for r in rounds):
            yield f"{state}: what was timed has not its gradient"


def published(record: Record) -> dict[str, Any]:
    """The record as it is committed: the name and result of each test once, for stock; and what differs
    from that in the other states."""
    states = {}
    for state, steps in record.asked.items():
        runs = steps["tests"]["files"].items()
        files = {f: {"counts": count(r), "crashes": r["crashes"]} for f, r in runs}
        if state == "stock":
            for file, run in steps["tests"]["files"].items():
                files[file]["results"] = grouped(run["results"])
        tests = {"seconds": steps["tests"]["seconds"], "files": files}
        if state != "stock":
            tests["differences"] = differences(record, state)
        states[state] = steps | {"tests": tests}
        if "controls" in steps:
            found = {key: run["results"] for key, run in steps["controls"]["files"].items()}
            states[state]["controls"] = steps["controls"] | {"files": found}
    of_others = ("tree", "flags", "machine", "probe", "series", "patches", "quick")  # no paths
    return {key: record.data[key] for key in of_others} | {"states": states}


def grouped(results: dict[str, str]) -> dict[str, dict[str, str]]:
    """{class: {result: its tests}}"""
    found: dict[str, dict[str, list[str]]] = {}
    for test, result in sorted(results.items()):
        case, _, method = test.rpartition(".")
        found.setdefault(case, {}).setdefault(result, []).append(method)
    return {case: {r: " ".join(tests) for r, tests in by.items()} for case, by in found.items()}


def count(run: dict[str, Any]) -> dict[str, int]:
    return dict(sorted(Counter(run["results"].values()).items()))


def counts(run: dict[str, Any]) -> str:
    return ", ".join(f"{n} {result}" for result, n in count(run).items())


def agreed(conventions: list[str]) -> str:
    return ", ".join(conventions) or "of no convention"


def told(record: Record, failures: list[str]) -> str:
    lines = []
    for state, steps in record.asked.items():
        build, judged = steps["build"], steps["gradients"]
        lines += [
            f"{state}:",
            f"  build: {build['seconds']} s, {build['steps']} steps",
            f"  numbers: {agreed(judged['numbers'])}; Tensors: {agreed(judged['tensors'])}; "
            f"{judged['points that changed']} of {judged['points']} points differ from stock",
        ]
        for file, run in steps["tests"]["files"].items():
            lines.append(f"  {file}: {counts(run)}")
            lines += [f"    {t} ended the process {n} times" for t, n in run["crashes"].items()]
        if state != "stock":
            lines += [f"    {t}: {a} -> {b}" for t, a, b in differences(record, state)]
    lines += (
        ["what does not hold:", *(f"  {f}" for f in failures)] if failures else ["All of it holds."]
    )
    lines.append(
        "Delete caches of compiled code now (~/.cache/torch, TORCHINDUCTOR_CACHE_DIR): they may hold "
        "old gradients."
    )
    return "\n".join(lines)
