"""Breaks the code one operator at a time, and asks whether a test notices.

    python tools/mutants.py build      all mutants in one library, chosen while it runs
    python tools/mutants.py run        every mutant against cells of test/matrix; writes mutants.json

The list is mutants.yaml. A mutant is run in a process of its own, forked from one that has
everything imported, and is killed by the first cell that fails, by a crash, or by the clock.
"""

import argparse
import ctypes
import itertools
import json
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "mutants"
TREE, LIB = WORK / "tree", WORK / "lib"
RESULT = ROOT / "tools" / "mutants.json"
SYMBOL = "clampgrad_mutant"
DECLARED = f'extern "C" __attribute__((visibility("default"))) int {SYMBOL};\n'
PYTHON = f'(getattr(__import__("sys"), "{SYMBOL}", 0) == {{k}})'
SECONDS = 300


def listed():
    return yaml.safe_load((ROOT / "tools" / "mutants.yaml").read_text())


def name(mutant):
    return f"{mutant['file']}: {mutant['was']} -> {mutant.get('becomes', mutant.get('text'))}"


def replaced(was, mutants):
    """One expression that is each of its mutants in turn."""
    python = mutants[0][1]["file"].endswith(".py")
    on = {k: PYTHON.format(k=k) if python else f"({SYMBOL} == {k})" for k, _ in mutants}
    if "text" in mutants[0][1]:
        ((k, m),) = mutants
        return m["text"].replace("{on}", on[k])
    result = f"({was})"
    for k, m in mutants:
        becomes = f"({m['becomes']})"
        if python:
            result = f"({becomes} if {on[k]} else {result})"
        else:
            result = f"({on[k]} ? {becomes} : {result})"
    return result


def build():
    shutil.rmtree(TREE, ignore_errors=True)
    files = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0")
    for file in filter(None, files):
        if not file.startswith(("docs/", "study/", "test/cuda", "benchmarks/results")):
            to = TREE / file
            to.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / file).exists():
                shutil.copy2(ROOT / file, to)
    by_place = defaultdict(list)
    for k, mutant in enumerate(listed(), 1):
        by_place[mutant["file"], mutant["was"]].append((k, mutant))
    texts, filled = {}, {}
    for (file, was), mutants in by_place.items():
        text = texts.get(file) or (TREE / file).read_text()
        if text.count(was) != 1:
            sys.exit(f"mutants.yaml: {text.count(was)} times in {file}: {was}")
        mark = f"@mutants {len(filled)}@"
        texts[file], filled[mark] = text.replace(was, mark), replaced(was, mutants)
    for file in texts:
        for mark, text in filled.items():
            texts[file] = texts[file].replace(mark, text)
    for file, text in texts.items():
        if file.endswith(".py"):
            (TREE / file).write_text(text)
        else:
            (TREE / file).write_text(DECLARED + text)
    # One instruction set, not optimised: the rules are the same in all, and compile sooner.
    isa = TREE / "csrc" / "kernels" / "cpu" / "isa.h"
    isa.write_text(isa.read_text().replace("#if defined(__x86_64__) && defined(__GNUC__)", "#if 0"))
    flags = {"CLAMPGRAD_DEBUG": "1", "CLAMPGRAD_CUDA": "0", "CFLAGS": "-include immintrin.h"}
    one = TREE / "csrc" / "ops" / "convention.cpp"
    one.write_text(f"{one.read_text()}\n{DECLARED}int {SYMBOL} = 0;\n")
    command = [sys.executable, "setup.py", "build", "--build-base", str(WORK / "base")]
    subprocess.check_call([*command, "--build-lib", str(LIB)], cwd=TREE, env=os.environ | flags)
    print(f"{len(listed())} mutants in {LIB}")


# ---- Running -------------------------------------------------------------------------------------


def chosen_cells(count, seed):
    """Cells of every operator, gradient and kind of arguments, the cheap contexts alone."""
    from dataclasses import replace

    from matrix.run import CONTEXTS, FORMS, applies, calls, waived

    order = random.Random(seed)
    every, cells = calls(), []
    plain = [replace(c, form=f, context="plain") for c in every for f in ("function", "in place")]
    order.shuffle(plain)
    cheap = [c for c in CONTEXTS if not CONTEXTS[c].costly and "thread" not in c]
    others = (
        replace(order.choice(every), form=order.choice(list(FORMS)), context=order.choice(cheap))
        for _ in itertools.count()
    )
    for cell in itertools.chain(plain[: count // 3], others):
        writes = FORMS[cell.form].writes
        if writes and not CONTEXTS[cell.context].records_nothing:
            continue
        if applies(cell) and not waived(cell):
            cells.append(cell)
        if len(cells) == count:
            return cells


def survive(k, cells, said):
    """Runs in a process of its own; says what killed the mutant."""
    from matrix.run import check

    ctypes.c_int.in_dll(ctypes.CDLL(str(next(LIB.rglob("_C*.so")))), SYMBOL).value = k
    setattr(sys, SYMBOL, k)
    for n, cell in enumerate(cells, 1):
        try:
            check(cell)
        except Exception as e:
            said.put((n, repr(cell), f"{type(e).__name__}: {str(e)[:80]}"))
            return
    said.put((len(cells), None, None))


def run(count, seed):
    import warnings

    sys.path[:0] = [str(LIB), str(ROOT / "test")]
    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(1)
    cells = chosen_cells(count, seed)
    context = multiprocessing.get_context("fork")
    found, survived = [], []
    for k, mutant in [(0, None), *enumerate(listed(), 1)]:
        said = context.Queue()
        worker = context.Process(target=survive, args=(k, cells, said))
        start = time.monotonic()
        worker.start()
        try:
            n, cell, error = said.get(timeout=SECONDS)
        except Exception:
            n, cell, error = 0, "the clock or a crash", f"exit code {worker.exitcode}"
        worker.join(5)
        if worker.is_alive():
            worker.kill()
        seconds = time.monotonic() - start
        if k == 0:
            if cell:
                sys.exit(f"fails unbroken: {cell}\n{error}")
            print(f"{len(cells)} cells hold unbroken, {seconds:.0f} s", flush=True)
            continue
        found.append({"mutant": name(mutant), "killed_by": cell, "how": error, "cells": n})
        if cell is None:
            survived.append(name(mutant))
        print(
            f"{k:>3} {'SURVIVES' if cell is None else f'killed by cell {n}'}  {name(mutant)}",
            flush=True,
        )
    RESULT.write_text(
        json.dumps(
            {
                "torch": torch.__version__.split("+")[0],
                "cells": len(cells),
                "seed": seed,
                "mutants": len(found),
                "killed": len(found) - len(survived),
                "results": found,
            },
            indent=1,
        )
        + "\n"
    )
    print(f"{len(found) - len(survived)} of {len(found)} mutants killed")
    return 1 if survived else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["build", "run"])
    parser.add_argument("--cells", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    sys.exit(build() if given.what == "build" else run(given.cells, given.seed))
