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

    def reason(text):
        if text not in reasons:
            reasons.append(text)
        return f"({reasons.index(text) + 1})"

    def cell(program, settings):
        runs = [program["runs"][s] for s in settings if s in program["runs"]]
        if not runs:
            return (
                reason(program["eager"])
                if "compiled joint" in settings and program["eager"]
                else "untried"
            )
        told = [r.get("does not run") or r.get("because") for r in runs]
        partly = ["untried in part"] * (len(runs) < len(settings))
        return " ".join([*dict.fromkeys(map(reason, filter(None, told))), *partly]) or "holds"

    for program in record["rows"]:
        runs = program["runs"]
        joint, calls = runs["joint"], sum(runs["joint"]["reached"].values())
        changed, numbers = joint["differs first at"], [joint.get("from"), joint.get("to")]
        changes = f"{changed}: {' → '.join(dict.fromkeys(numbers))}" if changed else "same"
        cells = [cell(program, settings) for settings in elsewhere.values()]
        rows.append(
            [
                code(program["program"]),
                len(program["lines"]),
                calls,
                cell(program, ["inclusive"]),
                changes,
                code(program["clamp"]) if changed else "",
                *cells,
            ]
        )
    numbered = "\n".join(f"{i}. {text}" for i, text in enumerate(reasons, 1))
    releases = " and ".join(record["releases"])
    note = f"PyTorch {releases}, {record['machine']}."
    return markdown(*rows, right=(1, 2)) + f"\n\n{numbered}\n\n{note}"


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
