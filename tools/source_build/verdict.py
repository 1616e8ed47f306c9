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


def proved(record: Record, series: Sequence[str]) -> dict[str, dict[str, list[str]]]:
    """What was proved of each state, by name, and what does not hold of it."""
    found: dict[str, dict[str, list[str]]] = {}
    for state in ("stock", *series, "undone"):
        found[state] = {} if state == "stock" else of_another(record, state)
        found[state]["clampgrad on this torch"] = list(package(record, state))
    return found


def of_another(record: Record, state: str) -> dict[str, list[str]]:
    proofs = {
        "gradients": list(record.found(state, "gradients")["failures"]),
        "upstream's tests": list(tests(record, state)),
    }
    in_wheels = {r["points that changed"] for r in VERIFIED if r["series"] == state}
    if in_wheels and not record.data["quick"]:
        proofs["points that changed, as in wheels"] = list(wheels(record, state, in_wheels))
    if state != "undone" and not named(state).claim.unchanged:
        proofs["its tests fail without it"] = list(controls(record, state))
    return proofs


def judge(record: Record, series: Sequence[str]) -> list[str]:
    states = proved(record, series).items()
    return [f"{state}: {line}" for state, proofs in states for p in proofs.values() for line in p]


def wheels(record: Record, state: str, in_wheels: set[int]) -> Iterator[str]:
    found = record.found(state, "gradients")["as verify counts them"]
    if found not in in_wheels:
        counted = ", ".join(map(str, sorted(in_wheels)))
        yield f"{found} points changed; in wheels, verify counted {counted}"


def tests(record: Record, state: str) -> Iterator[str]:
    """A test may differ from stock's result only if the series brings it, and it passes; or if the series
    says that it fails, as one of those then must. A test that is skipped has not passed."""
    fails = () if state == "undone" else named(state).fails
    failed = False
    yield from crashes(record, state)
    unrun = {test: why for test, why, excused in not_run(record, state) if excused}
    for test, before, after in differences(record, state):
        file, _, name = test.partition(": ")
        name = name.rpartition(".")[2]
        if (before, after) == ("ok", "failed") and is_one_of(fails, file, name):
            failed = True
        elif before == "not there" and state != "undone" and is_of(state, name):
            if after != "ok" and test not in unrun:
                why = cause(record, state, test)
                yield f"{test}, which it brings, is {after}{f': {why}' if why else ''}"
        else:
            yield f"{test} was {before} and is {after}"
    for test, before, after in other_causes(record, state):
        yield f"{test} has another cause: was {before}, and is {after}"
    if fails and not failed:
        yield f"none of the tests fails that must, as its series says: {', '.join(fails)}"


def cause(record: Record, state: str, test: str) -> str:
    file, _, name = test.partition(": ")
    found: str = record.found(state, "tests")["files"][file].get("causes", {}).get(name, "")
    return found


def not_run(record: Record, state: str) -> list[tuple[str, str, bool]]:
    """(test, reason, whether stock skips it for the same) of those that the series brings and that are skipped."""
    stock = record.found("stock", "controls")["files"] if record.found("stock", "controls") else {}
    found = []
    for test, before, after in differences(record, state):
        file, _, name = test.partition(": ")
        if (before, after) == ("not there", "skipped"):
            why = cause(record, state, test)
            control = stock.get(f"{state}: test/{file}", {"results": {}})
            on_stock = control["results"].get(name), control.get("causes", {}).get(name, "")
            found.append((test, why, on_stock == ("skipped", why)))
    return found


def other_causes(record: Record, state: str) -> Iterator[tuple[str, str, str]]:
    """(test, its cause on stock, its cause in this state) of those that break off in both."""
    stock, mine = (record.found(s, "tests")["files"] for s in ("stock", state))
    for file in mine.keys() & stock.keys():
        before, after = (f[file].get("causes", {}) for f in (stock, mine))
        results = [f[file]["results"] for f in (stock, mine)]
        for test in sorted(mine[file]["results"]):
            same = results[0].get(test) == results[1][test]
            if same and results[1][test] != "ok" and before.get(test) != after.get(test):
                yield f"{file}: {test}", before.get(test, ""), after.get(test, "")


def is_one_of(fails: Sequence[str], file: str, name: str) -> bool:
    pairs = (known.split(":") for known in fails)
    return any(file == where and word in name for where, word in pairs)


def crashes(record: Record, state: str) -> Iterator[str]:
    """Tests that ended the process several times. Once may be chance, as with test_profiler_propagation, and is only
    reported."""
    stock, mine = (record.found(s, "tests")["files"] for s in ("stock", state))
    for file, run in mine.items():
        for test, times in run["crashes"].items():
            if times > 1 and test not in stock.get(file, {}).get("crashes", {}):
                yield f"{file}: {test} ended the process {times} times, and never on stock"


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


def controls(record: Record, name: str) -> Iterator[str]:
    """What is wrong with the tests of a series on stock: they prove nothing of it if they pass there, or break off
    before they compare a gradient."""
    found = record.found("stock", "controls")["files"]
    runs = {key: run for key, run in found.items() if key.startswith(f"{name}: ")}
    results = {test: r for run in runs.values() for test, r in run["results"].items()}
    errors = [f"{key}: {run['error']}" for key, run in runs.items() if run["error"]]
    broken = [t for t, r in results.items() if r in ("error", "crashed", "no end")]
    if errors or broken:
        broke_off = ", ".join(errors + broken)
        yield f"without it these break off, which shows no gradient: {broke_off}"
    elif results and "failed" not in results.values():
        yield f"its tests do not fail without it: {', '.join(results)}"
    elif not results and new_tests(name):
        yield "none of its tests applies to this tree, so nothing of upstream's shows it"


def package(record: Record, state: str) -> Iterator[str]:
    """Where clampgrad's conventions on this torch are not those of the table, or it does not say rightly whether
    this torch is patched."""
    stock, found = (record.found(s, "package") for s in ("stock", state))
    for how in ("pinned", "by name"):
        for name, calls in found[how].items():
            for call, got in calls.items():
                if got != (wanted := found["wanted"][name][call]):
                    yield f"{call}, {name} {how}: {got}, not {wanted}"
    if found["survey"] != found["clamp(x, 0, 1) at 0"]:
        yield f"the survey measures {found['survey']}"
    for who, says in found["patched"].items():
        if bool(says) != (found["own"] != stock["own"]):
            yield f"the {who} says of this torch that it is {'' if says else 'not '}patched"
