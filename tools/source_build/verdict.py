"""What a whole run proved, and what does not hold of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

from brought import is_generated_from, is_of, new_tests
from record import Record
from series import ROOT, named

# What `verify` found in wheels: a build must show the same.
VERIFIED = json.loads((ROOT / "docs" / "verified.json").read_text())
Proof = list[str] | str  # what does not hold; or why there is nothing to hold


def proved(record: Record, series: Sequence[str]) -> dict[str, dict[str, Proof]]:
    """Of each state, by name."""
    found: dict[str, dict[str, Proof]] = {}
    for state in ("stock", *series, "undone"):
        found[state] = {
            "gradients": record.found(state, "gradients")["failures"],
            "clampgrad on this torch": list(package(record, state)),
        }
        if state != "stock":  # what the others are compared with
            found[state]["upstream's tests"] = list(tests(record, state))
    for name in series:
        found[name]["points that changed, as in wheels"] = wheels(record, name)
        found[name]["its tests fail without it"] = controls(record, name)
    return found


def judge(record: Record, series: Sequence[str]) -> list[str]:
    states = proved(record, series).items()
    lists = ((s, proof) for s, proofs in states for proof in proofs.values())
    return [f"{s}: {line}" for s, proof in lists if not isinstance(proof, str) for line in proof]


def wheels(record: Record, name: str) -> Proof:
    verified = {r["points that changed"] for r in VERIFIED if r["series"] == name}
    found = record.found(name, "gradients")["as verify counts them"]
    if record.data["quick"] or not verified:
        return "not asked (--quick)" if verified else "verify has counted none"
    counted = ", ".join(map(str, sorted(verified)))
    differ = f"{found} points changed; in wheels, verify counted {counted}"
    return [] if found in verified else [differ]


def tests(record: Record, state: str) -> Iterator[str]:
    """A test may differ from stock's result only if the series brings it, and it passes; or if the series
    lists it, and it fails. A test that is skipped has not passed."""
    fails = () if state == "undone" else named(state).fails
    failed: set[str] = set()
    yield from crashes(record, state)
    unrun = {test for test, _, excused in not_run(record, state) if excused}
    for test, before, after in differences(record, state):
        name = test.rpartition(".")[2]
        listed = {f for f in fails if fnmatchcase(f"{test.partition(': ')[0]}:{name}", f)}
        if (before, after) == ("ok", "failed") and listed:
            failed |= listed
        elif before == "not there" and state != "undone" and is_of(state, name):
            if after != "ok" and test not in unrun:
                why = cause(record, state, test)
                yield f"{test}, which it brings, is {after}{f': {why}' if why else ''}"
        else:
            yield f"{test} was {before} and is {after}"
    for test, before, after in other_causes(record, state):
        yield f"{test} has another cause: was {before}, and is {after}"
    yield from unrun_tests(record, state) if state != "undone" else ()
    for pattern in sorted({*fails} - failed):
        yield f"none of the tests fails that must, as its series says: {pattern}"


def unrun_tests(record: Record, state: str) -> Iterator[str]:
    """Those that the series brings and of which nothing is known: a runner that does not choose them says nothing."""
    left_out = (record.found("stock", "controls") or {"skipped": {}})["skipped"].get(state, [])
    runs = record.found(state, "tests")["files"].values()
    there = [test.rpartition(".")[2] for run in runs for test in run["results"]]
    for name in new_tests(state, left_out):
        if not any(is_generated_from(name, test) for test in there):
            yield f"{name}, which it brings, was not run"


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
    for file in dict.fromkeys([*stock, *mine]):
        before, after = (files.get(file, none)["results"] for files in (stock, mine))
        for test in sorted(before.keys() | after.keys()):
            pair = before.get(test, "not there"), after.get(test, "not there")
            if pair[0] != pair[1]:
                found.append((f"{file}: {test}", *pair))
    return found


def controls(record: Record, name: str) -> Proof:
    """What is wrong with the tests of a series on stock: they prove nothing of it if they pass there, or break off
    before they compare a gradient."""
    if named(name).claim.unchanged:
        return "not asked: it changes no gradient"
    if not new_tests(name):
        return "brings no tests"
    found = record.found("stock", "controls")
    runs = {key: run for key, run in found["files"].items() if key.startswith(f"{name}: ")}
    results = [pair for run in runs.values() for pair in run["results"].items()]
    own = [(test, r) for test, r in results if is_of(name, test.rpartition(".")[2])]
    lines = [f"{key}: {run['error']}" for key, run in runs.items() if run["error"]]
    bad = (pair for pair in own if pair[1] not in ("failed", "skipped"))
    lines += [f"{test} does not fail without it, but is {r}" for test, r in bad]
    there = new_tests(name, found["skipped"][name])
    failed = [test.rpartition(".")[2] for test, r in own if r != "skipped"]
    never = (test for test in there if not any(is_generated_from(test, f) for f in failed))
    lines += [f"{test} was not run without it" for test in never]
    none = ["none of its tests applies to this tree, so nothing of upstream's shows it"]
    return lines if there else none


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
