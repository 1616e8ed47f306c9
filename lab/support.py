"""The tables of docs/support.md, from what ran: which torch, implementation
and device passed which tests.

pytest --record=out/support.json ...      adds a run to the file
python -m lab.support FILE...             puts those runs into records/support.jsonl
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import records
from buildtools.torch_here import RANGE, RELEASES, minor
from records import code, table

ROOT = Path(__file__).resolve().parent.parent
# Features as users know them, and the test files that say whether they work.
FEATURES = {
    "gradients": ["test_table", "test_tensors", "test_seeds"],
    "modules": ["test_modules", "test_nn"],
    "torch.func": ["test_func", "test_func_tensors"],
    "double backward": ["test_gradcheck"],
    "torch.compile": ["test_compile"],
    "torch.export": ["test_export"],
    "pin": ["test_pin", "test_pin_by_environment"],
}
Run = dict[str, dict[str, int]]  # file -> {"passed": ..., "failed": ...}


# ---- The record ----------------------------------------------------------------------------------


def recorded() -> dict[str, Run]:
    runs: dict[str, Run] = {}
    for row in records.read("support")["rows"]:
        run = runs.setdefault(row.pop("run"), {})
        if file := row.pop("file"):  # none, where the library was only built
            run[file] = row
    return runs


def record(runs: dict[str, Run]) -> None:
    rows = [
        {"run": name, "file": file, **counts}
        for name, run in sorted(runs.items())
        for file, counts in (run or {None: {}}).items()
    ]
    records.write("support", rows)


def of_present_tests(runs: dict[str, Run]) -> dict[str, Run]:
    """Drops the files that no longer exist, and runs that have no other file. A run
    without any file was only built."""
    present = {path.stem for test in ("test", "lab") for path in ROOT.glob(f"{test}/**/test_*.py")}
    kept = {row: {f: n for f, n in run.items() if f in present} for row, run in runs.items()}
    return {row: run for row, run in kept.items() if run or not runs[row]}


def main() -> None:
    runs = recorded()
    for path in map(Path, sys.argv[1:]):
        for name, files in json.loads(path.read_text()).items():
            runs.setdefault(name, {}).update(files)
    record(of_present_tests(runs))
    print("python -m lab.fill_tables puts it into docs/support.md")


# ---- The tables ----------------------------------------------------------------------------------


def cell(run: Run | None, files: list[str], implementation: str = "portable") -> str:
    found = [run[f] for f in files if f in run] if run else []
    failed, passed = (sum(f[outcome] for f in found) for outcome in ("failed", "passed"))
    if failed:
        return f"{failed} of {failed + passed} failed"
    if passed:
        whole = [f for f in found if f["passed"] and not f.get("cut_off")]
        return "tested" if len(whole) == len(files) else "partly"
    return "untried" if run is None or implementation == "portable" else "built"


def key(row: str) -> tuple[list[int], str]:
    version, _, rest = row.partition(",")
    return [int(n) for n in version.partition("+")[0].split(".")], rest


def commits(run: Run | None) -> str:
    """Those that a run was of. The oldest rows do not say it."""
    named = dict.fromkeys(file.get("commit", "?") for file in (run or {}).values())
    return ", ".join(code(name) if name != "?" else "not recorded" for name in named)


@table()
def support():
    yield "torch", "implementation", "device", *FEATURES, "at commit"
    rows: dict[str, Run | None] = {row: run for row, run in recorded().items() if "(" not in row}
    have = {(minor(torch), how) for torch, how, _ in (r.split(", ") for r in rows)}
    for release in RELEASES:
        for how in ("compiled", "portable"):
            if (minor(release), how) not in have:
                rows[f"{release.rpartition('.')[0]}, {how}, cpu"] = None
    for row in sorted(rows, key=key):
        torch, implementation, device = row.split(", ")
        cells = (cell(rows[row], files, implementation) for files in FEATURES.values())
        yield torch, implementation, device, *cells, commits(rows[row])
    yield (
        f"The portable implementation needs no build. On releases outside {RANGE} it is the one that runs."
    )


KINDS = ("passed", "failed", "seconds")


def words_for(file: str, counts: dict) -> str:
    cut_off, failed = "cut_off" in counts, counts["failed"]
    more = [*["in part"] * cut_off, *[f"{failed} failed"] * bool(failed)]
    return file.removeprefix("test_") + (f" ({', '.join(more)})" if more else "")


@table()
def elsewhere():
    """A row for each run with a name in parentheses, as `pytest --unlike` gives it."""
    runs = recorded()
    yield "Only parts of the tests have run on these."
    yield "on", "torch", "implementation", "test files", "passed", "failed", "seconds", "at commit"
    for row in sorted(runs):
        if found := re.fullmatch(r"(.*), (.*), .* \((.*)\)", row):
            torch, implementation, name = found.groups()
            counts = (f"{sum(f[kind] for f in runs[row].values()):,}" for kind in KINDS)
            files = ", ".join(map(words_for, *zip(*runs[row].items())))
            yield name, torch, implementation, files, *counts, commits(runs[row])


@table()
def systems():
    """What lab/distro.sh has recorded."""
    yield "system", "Python", "compiler", "torch", "jobs", "installing torch", "demo", "test"
    for path in sorted(records.FOLDER.glob("from-nothing-*.jsonl")):
        ran = records.read(path)
        took = [f"{case['seconds']:.0f} s" for case in ran["rows"]]
        took[-1] += f", {ran['passed']:,} passed"
        yield *(ran[name] for name in ("system", "python", "compiler", "torch", "jobs")), *took


if __name__ == "__main__":
    main()
