"""The tables of docs/programs.md, from records/programs.jsonl and library-tests.jsonl."""

import records
from records import code, markdown


def programs():
    """One row a program: what a pin changed, and where that held."""
    elsewhere = {
        "portable": ["portable inclusive", "portable joint"],
        "`torch.compile`": ["compiled inclusive", "compiled joint"],
        "later release": ["later stock", "later inclusive", "later joint"],
    }
    rows = [["program", "lines", "calls", "`inclusive`", "`joint`", "clamp", *elsewhere]]
    reasons, record = [], records.read("programs")
    for program in record["rows"]:
        runs, eager = program["runs"], program["eager"]
        joint, calls = runs["joint"], sum(runs["joint"]["reached"].values())
        changed, numbers = joint["differs first at"], [joint.get("from"), joint.get("to")]
        changes = f"{changed}: {' → '.join(dict.fromkeys(numbers))}" if changed else "same"
        if eager and eager not in reasons:
            reasons.append(eager)
        cells = [held(runs, settings) for settings in elsewhere.values()]
        if eager:
            cells[list(elsewhere).index("`torch.compile`")] = f"({reasons.index(eager) + 1})"
        clamp = code(program["clamp"]) if changed else ""
        of_pins = [calls, held(runs, ["inclusive"]), changes, clamp]
        rows.append([code(program["program"]), len(program["lines"]), *of_pins, *cells])
    numbered = "\n".join(f"{i}. {text}" for i, text in enumerate(reasons, 1))
    releases = " and ".join(record["releases"])
    note = f"PyTorch {releases}, {record['machine']}."
    return markdown(*rows, right=(1, 2)) + f"\n\n{numbered}\n\n{note}"


def held(runs, settings):
    there = sum(name in runs for name in settings)
    return {0: "untried", len(settings): "holds"}.get(there, "untried in part")


def library_tests():
    """Their own tests, without a pin and under `inclusive`, of the libraries that the record has."""
    rows = [["library", "tests", "calls", "without a pin", "otherwise under `inclusive`"]]
    files = []
    for found in records.read("library-tests")["rows"]:
        name = found["library"]
        counts = ", ".join(f"{n:,} {outcome}" for outcome, n in found["stock"].items())
        differ = "; ".join(f"{k}: {a}, {b}" for k, (a, b) in found["differ"].items()) or "none"
        of = f"{name} {found['version']}, torch {found['torch']}"
        rows.append([of, f"{found['tests']:,}", f"{found['calls']:,}", counts, differ])
        files.append(f"{name}: {', '.join(map(code, found['files']))}")
    return (
        f"{markdown(*rows, right=(1, 2))}\n\n{'; '.join(files)}." if files else "None is recorded."
    )


def program_libraries():
    """The versions, per release."""
    releases = records.read("programs")["releases"]
    rows = [["library", *releases]]
    for name in next(iter(releases.values())):
        rows.append([name, *(found[name] or "none" for found in releases.values())])
    return markdown(*rows)


TABLES = {
    "programs": programs,
    "library_tests": library_tests,
    "program_libraries": program_libraries,
}
