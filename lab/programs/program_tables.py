"""The tables of docs/programs.md, from records/programs.jsonl and library-tests.jsonl."""

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


@table(right=(1, 2))
def library_tests():
    """Their own tests, without a pin and under `inclusive`, of the libraries that the record has."""
    rows = records.read("library-tests")["rows"]
    yield "library", "tests", "calls", "without a pin", "otherwise under `inclusive`"
    for found in rows:
        counts = ", ".join(f"{n:,} {outcome}" for outcome, n in found["stock"].items())
        differ = "; ".join(f"{k}: {a}, {b}" for k, (a, b) in found["differ"].items()) or "none"
        name = f"{found['library']} {found['version']}, torch {found['torch']}"
        yield name, f"{found['tests']:,}", f"{found['calls']:,}", counts, differ
    files = (f"{found['library']}: {', '.join(map(code, found['files']))}" for found in rows)
    yield f"{'; '.join(files)}."


@table()
def program_libraries():
    """The versions, per release."""
    releases = records.read("programs")["releases"]
    yield "library", *releases
    for name in next(iter(releases.values())):
        yield name, *(found[name] or "none" for found in releases.values())
