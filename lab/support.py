"""docs/support.md, from what ran: which torch, implementation and device passed which tests.

pytest --record=out/support.json ...      adds a run to the file
python -m lab.support FILE...           puts those runs beside the committed ones, with the libraries
                                          of a wheel if FILE is one, and writes both
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from pathlib import Path

import records
from buildtools.torch_here import RANGE, RELEASES, minor
from records import markdown

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "support.md"
PYTHONS = ["3.10", "3.11", "3.12", "3.13", "3.14", "3.15"]
USUAL = "3.11"  # what runs that name no Python ran on
# Features as users know them, and the test files that say whether they work.
FEATURES = {
    "gradients": ["test_table", "test_tensors", "test_seeds"],
    "modules": ["test_nn"],
    "torch.func": ["test_func", "test_func_tensors"],
    "double backward": ["test_gradcheck"],
    "torch.compile": ["test_compile"],
    "torch.export": ["test_export"],
    "pin": ["test_pin", "test_pin_by_environment"],
}
HEAD = """# Support

This page lists what the tests have run on. A cell says `tested` where every test file of the feature ran and
passed, `partly` where some of them ran, how many tests failed where some did, `built` where the library was
compiled and the tests were not run, and `untried` otherwise. These runs are on x86-64 under Linux, with GCC 12
and Python 3.11. The page is generated: `pytest --record` adds a run to a file, and `lab/support.py` puts it into
this table.

"""
TAIL = """

The portable implementation needs no build. On releases outside {range} it is the one that runs.

The CUDA kernels have never run, because no GPU was at hand. They are compiled and linked, and their machine code is
read (`make check-cuda`). MPS, XPU and ROCm have not been tried. The workflows in `.github/workflows` have never run,
and so neither have the wheels for macOS.

## From nothing

The two commands of README.md, on minimal systems with a compiler, make, git and Python (`make check-distro SUITE=...`;
the first column of times depends on the network):

{from_nothing}

## Other compilers, Pythons and machines

Only parts of the tests have run on these.{missing}

{unlike}

`make check-arm64` emulates the instructions of a Neoverse N1, so its seconds are not those of such a machine. It
leaves out compilers and export.

| compiler | platform | compiled | run |
|---|---|---|---|
| GCC 12 | Linux, x86-64 | everything | the tests above |
| GCC 14 and 16 | Linux, x86-64 | the library, for torch 2.13 | all tests, from nothing |
| Clang 14, 19 and 21 | Linux, x86-64 | the library, for torch 2.13 | what the table says |
| GCC 12, cross | Linux, aarch64 | the library, for torch 2.13 | emulated: what the table says |
| nvcc 13 | Linux | the CUDA kernels | no; their sources, as GCC compiles them for the host |
| Apple Clang | macOS, arm64 | no | no |

The tests have run on processors with AVX-512 and with AVX2, and run the loops of the lower
instruction sets there too.

On Linux, kernels run in the threads of the OpenMP runtime that libtorch brings, whatever compiler built the
library; elsewhere they run in the calling thread. The library brings no OpenMP runtime of its own.

The kernels are written in the vector extension of GCC and Clang, which MSVC does not have. On Windows a build gives
the portable package, which has not run there.
"""
Run = dict[str, dict[str, int]]  # file -> {"passed": ..., "failed": ...}


def cell(run: Run | None, files: list[str], implementation: str = "portable") -> str:
    found = [run[f] for f in files if f in run] if run else []
    failed, passed = (sum(f[outcome] for f in found) for outcome in ("failed", "passed"))
    if failed:
        return f"{failed} of {failed + passed} failed"
    if passed:
        return "tested" if sum(f["passed"] > 0 for f in found) == len(files) else "partly"
    return "untried" if run is None or implementation == "portable" else "built"


def key(row: str) -> tuple[list[int], str]:
    version, _, rest = row.partition(",")
    return [int(n) for n in version.partition("+")[0].split(".")], rest


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
        for name, run in runs.items()
        for file, counts in (run or {None: {}}).items()
    ]
    records.write("support", rows)


def table(runs: dict[str, Run]) -> str:
    lines = [["torch", "implementation", "device", *FEATURES]]
    rows: dict[str, Run | None] = {row: run for row, run in runs.items() if "(" not in row}
    have = {(minor(torch), how) for torch, how, _ in (r.split(", ") for r in rows)}
    for release in RELEASES:
        for how in ("compiled", "portable"):
            if (minor(release), how) not in have:
                rows[f"{release.rpartition('.')[0]}, {how}, cpu"] = None
    for row in sorted(rows, key=key):
        _, implementation, _ = row.split(", ")
        cells = [cell(rows[row], names, implementation) for names in FEATURES.values()]
        lines.append([*row.split(", "), *cells])
    return markdown(*lines)


def of_another_kind(runs: dict[str, Run]) -> str:
    """A row for each run with a name in parentheses, as `pytest --unlike` gives it."""
    lines = [["on", "torch", "implementation", "test files", "passed", "failed", "seconds"]]
    for row in sorted(runs):
        if found := re.fullmatch(r"(.*), (.*), .* \((.*)\)", row):
            torch, implementation, name = found.groups()
            of_files = runs[row].values()
            counts = [f"{sum(f[what] for f in of_files):,}" for what in ("passed", "failed")]
            timed = all("seconds" in f for f in of_files)  # older records are not
            counts.append(f"{sum(f['seconds'] for f in of_files):,}" if timed else "")
            files = ", ".join(file.removeprefix("test_") for file in runs[row])
            lines.append([name, torch, implementation, files, *counts])
    return markdown(*lines)


def from_nothing() -> list[dict]:
    """What lab/distro.sh has recorded."""
    paths = sorted(records.FOLDER.glob("from-nothing-*.jsonl"))
    return [records.read(str(path)) for path in paths]


def of_systems() -> str:
    lines = [["system", "Python", "compiler", "torch", "jobs", "installing torch", "demo", "test"]]
    for ran in from_nothing():
        took = [f"{case['seconds']:.0f} s" for case in ran["rows"]]
        took[-1] += f", {ran['passed']:,} passed"
        facts = [ran[name] for name in ("system", "python", "compiler", "torch", "jobs")]
        lines.append([*facts, *took])
    return markdown(*lines) if lines[1:] else "No run has been recorded."


def pythons_missing(runs: dict[str, Run]) -> str:
    whole = {".".join(ran["python"].split(".")[:2]) for ran in from_nothing()}
    ran = {USUAL, *whole, *re.findall(r"\(Python ([\d.]+)\)", " ".join(runs))}
    untried = [python for python in PYTHONS if python not in ran]
    return f" No test has run on Python {', '.join(untried)}." if untried else ""


def page(runs: dict[str, Run]) -> str:
    facts = {
        "range": RANGE,
        "from_nothing": of_systems(),
        "unlike": of_another_kind(runs),
        "missing": pythons_missing(runs),
    }
    return HEAD + table(runs) + TAIL.format(**facts)


def merge(runs: dict[str, Run], more: dict[str, Run]) -> dict[str, Run]:
    for name, files in more.items():
        runs.setdefault(name, {}).update(files)
    return dict(sorted(runs.items()))


def of_present_tests(runs: dict[str, Run]) -> dict[str, Run]:
    """Drops the files that no longer exist, and runs that have no other file. A run without any file was only built."""
    present = {path.stem for path in ROOT.glob("test/**/test_*.py")}
    kept = {row: {f: n for f, n in run.items() if f in present} for row, run in runs.items()}
    return {row: run for row, run in kept.items() if run or not runs[row]}


def built(wheel: Path, runs: dict[str, Run]) -> dict[str, Run]:
    """A row for each library of a wheel whose release has none."""
    with zipfile.ZipFile(wheel) as archive:
        folders = {n.split("/")[2] for n in archive.namelist() if n.startswith("clampgrad/_lib/")}
    releases = [".".join(folder.split("_")[1:3]) for folder in sorted(folders)]
    ran = {minor(row) for row in runs if "compiled" in row}
    return {f"{release}, compiled, cpu": {} for release in releases if minor(release) not in ran}


if __name__ == "__main__":
    runs = recorded()
    for path in map(Path, sys.argv[1:]):
        wheel = path.suffix == ".whl"
        runs = merge(runs, built(path, runs) if wheel else json.loads(path.read_text()))
    runs = of_present_tests(runs)
    record(runs)
    PAGE.write_text(page(runs))
