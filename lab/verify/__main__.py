"""Verifies a series of patches in the installed PyTorch: applies it, compiles its formulas, and
runs PyTorch's own operators through the matrix of testing/matrix. Exit codes: 0 nothing wrong was
found, 1 something was, 2 refused."""

import argparse
import json
import os
import re
import sys
import tempfile
from datetime import date
from itertools import groupby
from pathlib import Path

import torch

import records

from ..series import FUNCTIONS, ROOT, YAML, Refusal, default, files_of, named, output_of
from .library import build_library, find_changed_entries
from .upstream_files import MANUAL, apply_patches

RELEASE = torch.__version__.split("+")[0]
# Beside the files of a series that are not compiled, and cells that are left out.
NEVER = (
    "what nodes save for backward, other operators, TorchScript, and every device but the CPU",
    "FunctionsManual.cpp, but for the functions that our patches quote whole",
    "forward mode of Tensors at a NaN, where PyTorch's is not the transpose of reverse mode",
)


def run_matrix(*arguments):
    """Returns what lab.verify.cells answers, without a pin or a cache of compiled code: the key of
    AOTAutograd's cache does not contain the formulas."""
    with tempfile.TemporaryDirectory() as scratch:
        answer = Path(scratch, "answer")
        command = [sys.executable, "-m", "lab.verify.cells", answer, *arguments]
        env = {"TORCHINDUCTOR_CACHE_DIR": f"{scratch}/cache", "CLAMPGRAD_GRADIENT": ""}
        env["PYTHONPATH"] = str(ROOT)
        output_of(command, "The matrix broke off", cwd=scratch, env=os.environ | env)
        return json.loads(answer.read_text())


def verify(series):
    """Returns what was looked at, what was not, and what is wrong. Refuses a series without a
    convention or for another release, and one that changes no formula, does not apply or does not
    compile."""
    if not series.convention:
        raise Refusal(f"{series.name} names no convention, so there is nothing to compare with.")
    if not series.fits(RELEASE):
        raise Refusal(f"{series.name} is for {series.span}, and this is torch {RELEASE}.")
    with tempfile.TemporaryDirectory() as scratch:
        folders = [Path(scratch, side) for side in ("stock", "patched")]
        before, after = (
            apply_patches(f, p, RELEASE) for f, p in zip(folders, ([], series.patches))
        )
        old, new = ({m[0]: m[1] for m in MANUAL.finditer(t[FUNCTIONS])} for t in (before, after))
        changed = sorted({new[text] for text in new.keys() - old.keys()})
        changed += find_changed_entries(before, after)
        if not changed:
            raise Refusal(f"{series.name} changes no formula of clamp and its family.")
        print("compiling the formulas, then a minute or two of cells", file=sys.stderr)
        library = build_library(folders[1], after)
        outcome = run_matrix(library, series.convention, *sorted(series.scope))
    files = [name for name in files_of(*series.patches) if name not in (YAML, FUNCTIONS)]
    return outcome | {"changed": changed, "files": files}


def group(wrong):
    """The operator, the kind of bounds, and what is wrong up to its numbers."""
    operator, kind, _, error = wrong
    return operator, kind, re.sub(r": ([-\[(\d]|nan|inf).*", "", error)


def report(series, outcome):
    """Prints what was looked at, what was not, and a line for each kind of mistake."""
    print(f"{series.name} applies to the formulas of torch {RELEASE}; compiled with these changed:")
    print(*(f"  {name}" for name in outcome["changed"]), sep="\n")
    print(f"looked at, of the matrix, in {outcome['contexts']} contexts:")
    print(*(f"  {of}: {n:,} cells hold" for of, n in sorted(outcome["held"].items())), sep="\n")
    print("not looked at:")
    print(*(f"  {name}" for name in (*outcome["files"], *NEVER)), sep="\n")
    print(*(f"  {n:,} cells: {reason}" for reason, n in outcome["left out"].items()), sep="\n")
    for (operator, kind, error), same in groupby(sorted(outcome["wrong"], key=group), group):
        (_, _, cell, _), *others = same
        print(f"WRONG: {operator}, {kind}: {error} ({len(others) + 1} cells)\n  {cell}")


def record(series, outcome):
    """Puts it into the table of docs/upstream/verify.md."""
    rows = {(r["torch"], r["series"]): r for r in records.read("verified")["rows"]}
    rows[RELEASE, series.name] = {
        "torch": RELEASE,
        "series": series.name,
        "convention": series.convention,
        "cells": sum(outcome["held"].values()),
        "left out": sum(outcome["left out"].values()),
        "date": f"{date.today()}",
        "commit": records.commit(),
    }
    records.write("verified", [rows[key] for key in sorted(rows)], commit=None)


def main(words=None):
    parser = argparse.ArgumentParser("python -m lab.verify", description=__doc__)
    parser.add_argument("--series", help="its name (default: the one for the installed PyTorch)")
    parser.add_argument("--record", action="store_true", help="add it to records/verified.jsonl")
    options = parser.parse_args(words)
    try:
        series = named(options.series) if options.series else default(RELEASE)
        outcome = verify(series)
    except Refusal as refusal:
        print(f"refused: {refusal}")
        return 2
    report(series, outcome)
    if options.record and not outcome["wrong"]:
        record(series, outcome)
    return bool(outcome["wrong"])


if __name__ == "__main__":
    sys.exit(main())
