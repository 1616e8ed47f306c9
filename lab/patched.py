"""Stock torch beside a series of patches: both sides compiled as `verify` compiles them, each loaded in
processes of its own, in turn."""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

import records

SIDES = ("stock", "patched")


def libraries(name: str, directory: Path) -> dict[str, Path]:
    """Compiled under `directory`, unless those of the same patches and torch are there."""
    from lab.series import named
    from lab.verify.compile import compiled
    from lab.verify.generate import affected, generated
    from lab.verify.native import Added, added
    from lab.verify.text import patched

    release = torch.__version__.split("+")[0]
    series = named(name)
    patches = [p for p in series.patches if p not in series.unproved]
    text = torch.__version__.encode() + b"".join(p.read_bytes() for p in patches)
    directory = directory / hashlib.sha256(text).hexdigest()[:16]
    found = {side: directory / side / "libproved.so" for side in SIDES}
    if all(library.exists() for library in found.values()):
        return found
    print(f"compiling stock and {name}", file=sys.stderr)
    shutil.rmtree(directory, ignore_errors=True)  # what an interrupted run left
    folders = [directory / side for side in SIDES]
    texts = [patched(f, p, release, None) for f, p in zip(folders, ([], patches))]
    codes = [generated(folder, text) for folder, text in zip(folders, texts)]
    names = affected(*codes)
    new = [Added(), added(folders[1], *texts)]
    return {s: compiled(*of_side, names, n) for s, *of_side, n in zip(SIDES, codes, folders, new)}


def rounds(built: dict[str, Path], count: int, module: str, cases: list[str]) -> dict[str, list]:
    """What this script prints with `--library LIBRARY CASE...`, for both sides in turn, `count` times."""
    found: dict[str, list] = {side: [] for side in SIDES}
    for i in range(count):
        print(f"round {i + 1} of {count}", file=sys.stderr)
        for side in SIDES:
            command = [sys.executable, "-m", module, "--library", str(built[side]), *cases]
            found[side].append(json.loads(subprocess.check_output(command)))
    return found


def main(
    measured: Callable[[list[str]], dict], summary: Callable[[dict], tuple], series: str, count: int
) -> None:
    """Either side measures in its process; the main process compares them, and writes a record."""
    if sys.argv[1:2] == ["--library"]:
        torch.set_num_threads(1)
        torch.ops.load_library(sys.argv[2])
        print(json.dumps(measured(sys.argv[3:])))
        return
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--series", default=series)
    parser.add_argument("--out", type=Path, required=True, help="FILE.jsonl")
    parser.add_argument("--cases", nargs="+", default=[], help="these alone")
    parser.add_argument("--rounds", type=int, default=count, help="0: compile and end")
    parser.add_argument("--note", default="", help="what a reader of the times must know")
    parser.add_argument(
        "--built",
        type=Path,
        help="a folder for the libraries; those of the same patches are taken from it",
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        built = libraries(options.series, options.built or Path(scratch))
        if not options.rounds:
            return
        module = sys.modules["__main__"].__spec__.name
        found = rounds(built, options.rounds, module, options.cases)
    rows, more = summary(found)
    header = {"series": options.series, "note": options.note, "processes": options.rounds}
    records.write(options.out, rows, **records.here(), **header, **more)
