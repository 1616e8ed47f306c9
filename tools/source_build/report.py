"""What a whole run found: as it is committed, and as people read it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from record import Record
from verdict import differences


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
