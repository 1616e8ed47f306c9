"""The tables of docs/programs.md, from records/programs.jsonl."""

import records
from records import code, table

ELSEWHERE = {
    "portable": ["portable inclusive", "portable joint"],
    "`torch.compile`": ["compiled inclusive", "compiled joint"],
    "later release": ["later stock", "later inclusive", "later joint"],
}


@table(right=(1, 2))
def programs():
    """One row a program: what a pin changed, and where that held."""
    yield "program", "lines", "calls", "`inclusive`", "`joint`", "clamp", *ELSEWHERE
    reasons, record = [], records.read("programs")
    for program in record["rows"]:
        runs, eager = program["runs"], program["eager"]
        joint, calls = runs["joint"], sum(runs["joint"]["reached"].values())
        changed, numbers = joint["differs first at"], [joint.get("from"), joint.get("to")]
        changes = f"{changed}: {' → '.join(dict.fromkeys(numbers))}" if changed else "same"
        cells = {name: held(runs, settings) for name, settings in ELSEWHERE.items()}
        if eager:
            reasons += [eager] if eager not in reasons else []
            cells["`torch.compile`"] = f"({reasons.index(eager) + 1})"
        clamp = code(program["clamp"]) if changed else ""
        of_pins = [calls, held(runs, ["inclusive"]), changes, clamp]
        yield code(program["program"]), len(program["lines"]), *of_pins, *cells.values()
    yield "\n".join(f"{i}. {text}" for i, text in enumerate(reasons, 1))
    yield f"PyTorch {' and '.join(record['releases'])}, {record['machine']}."


def held(runs, settings):
    there = sum(name in runs for name in settings)
    return {0: "untried", len(settings): "holds"}.get(there, "untried in part")


@table(right=(2, 3))
def program_audits():
    """What an audit says first, on each release."""
    yield "program", "PyTorch", "call sites", "of PyTorch's functions", "the first sentence"
    for row in records.read("audited")["rows"]:
        first = row["summary"].partition(". ")[0] + "."
        counts = row["call sites"], row["of PyTorch's functions"]
        yield code(row["program"]), row["torch"], *counts, first


@table()
def program_libraries():
    """The versions, per release."""
    releases = records.read("programs")["releases"]
    yield "library", *releases
    for name in next(iter(releases.values())):
        yield name, *(found[name] or "none" for found in releases.values())
