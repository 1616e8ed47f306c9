"""What a whole run found: as it is committed, and as people read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from record import Record
from verdict import differences, not_run, other_causes, proved

FINE = ("ok", "skipped", "expected failure")


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
                files[file]["causes"] = reasons(run, lambda r: r not in FINE)
                files[file]["skipped"] = reasons(run, lambda r: r == "skipped")
        tests = steps["tests"] | {"files": files}
        if state != "stock":
            tests["differences"] = differences(record, state)
            tests["other causes"] = list(other_causes(record, state))
            tests["not run"] = not_run(record, state)
        states[state] = steps | {"tests": tests}
        if "controls" in steps:
            results = {key: run["results"] for key, run in steps["controls"]["files"].items()}
            states[state]["controls"] = steps["controls"] | {"files": results}
    of_others = ("tree", "flags", "minimal", "machine", "probe", "series", "quick", "proofs")
    of_others += ("start", "end", "starts", "from nothing")  # no paths
    found = {key: record.data[key] for key in of_others} | {"states": states}
    found["patches"] = {name: record.data["patches"][name] for name in found["series"]}
    return found | {"proved": named_proofs(record), "not asked": not_asked(record)}


def named_proofs(record: Record) -> dict[str, dict[str, Any]]:
    """For every state {what was proved: "holds", or what does not}."""
    states = proved(record, record.data["series"]).items()
    return {s: {name: found or "holds" for name, found in p.items()} for s, p in states}


def not_asked(record: Record) -> list[str]:
    lines = ["Inductor and compiled autograd (--quick)"] * record.data["quick"]
    return lines + ["times (--rounds 0)"] * (not record.found("undone", "times"))


def reasons(run: dict[str, Any], chosen: Callable[[str], bool]) -> dict[str, int]:
    """{cause: how many tests have it} of those with the chosen results."""
    tests = [test for test, result in run["results"].items() if chosen(result)]
    return dict(Counter(run.get("causes", {}).get(test, "") for test in tests))


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
    proofs = named_proofs(record)
    starts = record.data["starts"]
    lines = [
        f"{record.data['start']} to {record.data['end']}, "
        f"{'in one piece' if starts == 1 else f'in {starts} pieces'}."
    ]
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
            lines += [f"    not run: {t}: {why}" for t, why, _ in not_run(record, state)]
        lines += [f"    not in the tree: {file}" for file in steps["tests"]["not in the tree"]]
        skipped = record.states["stock"]["controls"]["skipped"].get(state, [])
        lines += [f"    left out, its text is not there: {patch}" for patch in skipped]
        lines += [
            f"    {name}: {found if isinstance(found, str) else 'does not hold'}"
            for name, found in proofs[state].items()
        ]
    left_out = not_asked(record)
    lines.append(f"Not asked: {', '.join(left_out)}." if left_out else "All was asked.")
    holds = f"All {'that was asked' if left_out else 'of it'} holds."
    lines += ["what does not hold:", *(f"  {f}" for f in failures)] if failures else [holds]
    lines.append(
        "Delete caches of compiled code now (~/.cache/torch, TORCHINDUCTOR_CACHE_DIR): they may hold "
        "old gradients."
    )
    return "\n".join(lines)
