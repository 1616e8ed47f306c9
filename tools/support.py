"""docs/support.md, from what ran: which torch, implementation and device passed which tests.

pytest --record=out/support.json ...      adds a run to the file
python tools/support.py FILE...           puts those runs beside the committed ones, with the libraries
                                          of a wheel if FILE is one, and writes both
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNS = ROOT / "docs" / "support.json"
IMPORTING = ROOT / "benchmarks" / "results" / "importing.json"
PAGE = ROOT / "docs" / "support.md"
RELEASES = ["2.11", "2.12", "2.13", "2.14", "2.15"]
# What a user would ask for, and the test files that say whether it works.
FEATURES = {
    "gradients": ["test_table", "test_tensors", "test_seeds"],
    "modules": ["test_nn"],
    "torch.func": ["test_func", "test_func_tensors"],
    "double backward": ["test_gradcheck"],
    "torch.compile": ["test_compile"],
    "torch.export": ["test_export"],
    "pin": ["test_pin", "test_pin_by_environment"],
}
PORTABLE_PIN = ["test_portable", "test_pin_calls"]  # it promises less
HEAD = """# Support

What the tests have run on. A cell says `tested` where every test file of the feature ran and passed,
`partly` where some of them ran, how many tests failed where some did, `built` where the library was
compiled and the tests were not run, and `untried` otherwise. The page is generated: `pytest --record`
adds a run to a file, and `tools/support.py` puts it into this table. A row that names no machine is of
x86-64.

"""
TAIL = """

The portable implementation needs no build. On releases outside 2.11 to 2.15 it is the one that runs.

Not run where there is no GPU: the CUDA kernels; they are compiled, linked and read (`make check-cuda`).
Untried: MPS, XPU and ROCm. On aarch64, `make check-arm64` emulates the instructions of a Neoverse N1; it
leaves out compilers and export, times nothing, and its row says how much of it ran. Written and never
run: the workflows in `.github/workflows`, hence the wheels for macOS and for Python other than 3.11.

| compiler | platform | compiled | run |
|---|---|---|---|
| GCC 12 | Linux, x86-64 | everything | the tests above |
| Clang 14 | Linux, x86-64 | the library, for torch 2.13 | its tests |
| GCC 12, cross | Linux, aarch64 | the library, for torch 2.13 | emulated: what the table says |
| nvcc 13 | Linux | the CUDA kernels | no; their sources, as GCC compiles them for the host |
| MSVC | Windows, x86-64 | no | no |
| Apple Clang | macOS, arm64 | no | no |

The tests have run on processors with AVX-512 and with AVX2, and run the loops of the lower
instruction sets there too.

On Linux, kernels run in the threads of the OpenMP runtime that libtorch brings, whatever compiler built the
library; elsewhere they run in the calling thread. The library brings no OpenMP runtime of its own.

MSVC has no vector extension, which the kernels are written in. There they take one element at a time. The
tests run this variant as GCC compiles it (`-DCLAMPGRAD_SCALAR_LOOPS`). A build on Windows needs `cl` on PATH,
as in a developer prompt; without it, or with `CLAMPGRAD_PORTABLE=1`, it gives the portable package.

<!-- generated from benchmarks/results/importing.json -->
`import clampgrad` after `import torch` takes {compiled:.0f} ms of CPU with the compiled implementation and
{portable:.0f} ms with the portable one (medians of {runs} processes, torch {torch}, Python {python};
`benchmarks/importing.py`).
<!-- end -->
"""
Run = dict[str, dict[str, int]]  # file -> {"passed": ..., "failed": ...}


def cell(run: Run | None, files: list[str], implementation: str = "portable") -> str:
    found = [run[f] for f in files if f in run] if run else []
    failed, passed = (sum(f[outcome] for f in found) for outcome in ("failed", "passed"))
    if failed:
        return f"{failed} of {failed + passed} fail"
    if passed:
        return "tested" if sum(f["passed"] > 0 for f in found) == len(files) else "partly"
    return "untried" if run is None or implementation == "portable" else "built"


def key(row: str) -> tuple[list[int], str]:
    version, _, rest = row.partition(",")
    return [int(n) for n in version.partition("+")[0].split(".")], rest


def recorded() -> dict[str, Run]:
    return json.loads(RUNS.read_text()) if RUNS.exists() else {}


def table(runs: dict[str, Run]) -> str:
    columns = ["torch", "implementation", "device", *FEATURES]
    lines = [f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
    have = {
        (".".join(torch.split(".")[:2]), how) for torch, how, _ in (r.split(", ") for r in runs)
    }
    rows: dict[str, Run | None] = dict(runs)
    for release in RELEASES:
        for how in ("compiled", "portable"):
            if (release, how) not in have:
                rows[f"{release}, {how}, cpu"] = None
    for row in sorted(rows, key=key):
        _, implementation, _ = row.split(", ")
        files = FEATURES | ({"pin": PORTABLE_PIN} if implementation == "portable" else {})
        cells = [cell(rows[row], names, implementation) for names in files.values()]
        lines.append(f"| {' | '.join([*row.split(', '), *cells])} |")
    return "\n".join(lines)


def page(runs: dict[str, Run], importing: dict) -> str:
    seconds = importing["seconds of CPU"]
    medians = {how: 1000 * seconds[how]["median"] for how in seconds}
    return HEAD + table(runs) + TAIL.format(**importing, **medians)


def merge(runs: dict[str, Run], more: dict[str, Run]) -> dict[str, Run]:
    for name, files in more.items():
        runs.setdefault(name, {}).update(files)
    return dict(sorted(runs.items()))


def built(wheel: Path, runs: dict[str, Run]) -> dict[str, Run]:
    """A row for each library of a wheel whose release has none."""
    with zipfile.ZipFile(wheel) as archive:
        folders = {n.split("/")[2] for n in archive.namelist() if n.startswith("clampgrad/_lib/")}
    minors = [".".join(folder.split("_")[1:3]) for folder in sorted(folders)]
    ran = {".".join(row.split(".")[:2]) for row in runs if "compiled" in row}
    return {f"{minor}, compiled, cpu": {} for minor in minors if minor not in ran}


if __name__ == "__main__":
    runs = recorded()
    for path in map(Path, sys.argv[1:]):
        wheel = path.suffix == ".whl"
        runs = merge(runs, built(path, runs) if wheel else json.loads(path.read_text()))
    RUNS.write_text(json.dumps(runs, indent=1) + "\n")
    PAGE.write_text(page(runs, json.loads(IMPORTING.read_text())))
