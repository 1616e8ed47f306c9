"""Breaks the code one operator at a time, and asks whether a test notices.

    python lab/mutants.py build              all mutants in one library, chosen while it runs
    python lab/mutants.py run                every mutant; writes lab/mutants.json
    python lab/mutants.py run --only TEXT    those with TEXT in their name; the others' results stay
    python lab/mutants.py run --new          those that have no result yet: goes on where a run was ended

The list is mutants.yaml. Each mutant runs in its own process, forked from one that has everything imported.
It runs what killed it the last time, cells of test/matrix (not for the pin, whose tests are quicker), and the
test files that the list names for its source, until one fails or the process crashes; a timeout kills none.
The killing tests must pass on the unmodified build. A mutant that no test can notice has its reason in the
list, and does not run.
"""

import argparse
import ctypes
import json
import multiprocessing
import os
import random
import re
import subprocess
import sys
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "test")]

from quick_build import build_quickly, copy_to  # noqa: E402

WORK = ROOT / "build" / "mutants"
TREE, LIB = WORK / "tree", WORK / "lib"
RESULT = ROOT / "lab" / "mutants.json"
SYMBOL = "clampgrad_mutant"
VARIABLE = "CLAMPGRAD_MUTANT"
DECLARED = f'extern "C" __attribute__((visibility("default"))) int {SYMBOL};\n'
# Of the environment, so that processes which a test starts are broken too.
DEFINED = f"""#include <cstdlib>
{DECLARED}int {SYMBOL} = [] {{
  const char* k = std::getenv("{VARIABLE}");
  return k ? std::atoi(k) : 0;
}}();
"""
PYTHON = f'(__import__("os").environ.get("{VARIABLE}") == "{{k}}")'
SECONDS = 300


def listed():
    return yaml.safe_load((ROOT / "lab" / "mutants.yaml").read_text())["mutants"]


def name(mutant):
    return mutant["name"]


def tests_of(mutant):
    """The files of the longest folder or file that the list has for this source."""
    tests = yaml.safe_load((ROOT / "lab" / "mutants.yaml").read_text())["tests"]
    return tests[max((p for p in tests if mutant["file"].startswith(p)), key=len)]


PORTABLE = ("python/clampgrad/_implementation/portable/", "python/clampgrad/_contract/")


def in_a_cell(mutant):
    return mutant["file"].startswith(("csrc/", *PORTABLE)) and "pin" not in mutant["file"]


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


def broken():
    """By file, its text with every mutant in it. What is replaced must stand there exactly once."""
    by_place = defaultdict(list)
    for k, mutant in enumerate(listed(), 1):
        by_place[mutant["file"], mutant["was"]].append((k, mutant))
    texts, filled = {}, {}
    for (file, was), mutants in by_place.items():
        text = texts.get(file) or (ROOT / file).read_text()
        if text.count(was) != 1:
            raise ValueError(f"mutants.yaml: {text.count(was)} times in {file}: {was}")
        mark = f"@mutants {len(filled)}@"
        texts[file], filled[mark] = text.replace(was, mark), replaced(was, mutants)
    for file in texts:
        for mark, text in filled.items():
            texts[file] = texts[file].replace(mark, text)
    return texts


def build():
    texts = broken()
    copy_to(TREE)
    for file, text in texts.items():
        (TREE / file).write_text(text if file.endswith(".py") else DECLARED + text)
    one = TREE / "csrc" / "base" / "convention.cpp"
    one.write_text(f"{one.read_text()}\n{DEFINED}")
    build_quickly(TREE, LIB, CFLAGS="-include immintrin.h")
    print(f"{len(listed())} mutants in {LIB}")


# ---- Running -------------------------------------------------------------------------------------


def chosen_cells(count, seed):
    """Every call in the plainest form and context, and `count` others, in the cheap contexts alone."""
    from dataclasses import replace

    from matrix.run import CONTEXTS, FORMS, applies, calls, waived

    order = random.Random(seed)
    every, cells = calls(), []
    cheap = [c for c in CONTEXTS if not CONTEXTS[c].costly and "thread" not in c]
    while len(cells) < count:
        form, context = order.choice(list(FORMS)), order.choice(cheap)
        cell = replace(order.choice(every), form=form, context=context)
        writes = FORMS[form].writes and not CONTEXTS[context].records_nothing
        if not writes and applies(cell) and not waived(cell):
            cells.append(cell)
    cells += every
    order.shuffle(cells)
    return cells


class FirstFailure:
    """A plugin of pytest."""

    found = None

    def pytest_runtest_logreport(self, report):
        if report.failed and not self.found:
            self.found = report.nodeid, str(report.longrepr).strip().split("\n")[-1]

    pytest_collectreport = pytest_runtest_logreport


def break_this_process(k):
    os.environ[VARIABLE] = str(k)
    library = next(LIB.rglob("_C*.so"), None)
    if k and library and listed()[k - 1]["file"].startswith("csrc/"):
        ctypes.c_int.in_dll(ctypes.CDLL(str(library)), SYMBOL).value = k
    contract = sys.modules.get("clampgrad._implementation.portable.contract")
    for thing in vars(contract).values() if contract else ():
        if hasattr(thing, "cache_clear"):
            thing.cache_clear()


def cells_among(killers):
    """As they are written: of another run, perhaps."""
    from matrix.cells import Arg, Cell, inf, nan

    names = {"Arg": Arg, "Cell": Cell, "inf": inf, "nan": nan}
    return [eval(k, names) for k in sorted(killers) if k.startswith("Cell(")]


def tests_among(killers):
    return sorted(k for k in killers if "::" in k)


def fails_a_cell(cells):
    from matrix.run import check

    for cell in cells:
        try:
            check(cell)
        except Exception as e:
            return repr(cell), f"{type(e).__name__}: {str(e)[:80]}"


def fails_a_test(tests):
    import pytest

    first = FirstFailure()
    options = [
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-W",
        "ignore",
        "-m",
        "not slow",
    ]
    if tests:
        pytest.main([*options, *tests], plugins=[first])
    if not first.found:
        return None
    name, error = first.found
    return name, re.sub(rf"{ROOT}/|\S*site-packages/", "", error)[:80]


def survive(k, cells, tests, last, said):
    """Runs in its own process; returns which test killed the mutant, and how."""
    break_this_process(k)
    quiet = open(os.devnull, "w")  # noqa: SIM115
    sys.stdout = sys.stderr = quiet
    said.put(
        fails_a_cell(cells_among([last]))
        or fails_a_test(tests_among([last]))
        or fails_a_cell(cells)
        or fails_a_test(tests)
        or (None, None)
    )


def unbroken(cells):
    """Those that hold where nothing is broken; found in another process, because it leaves traces."""
    from matrix.run import check

    def try_all(said):
        holding = []
        for i, cell in enumerate(cells):
            try:
                check(cell)
                holding.append(i)
            except Exception:
                pass
        said.put(holding)

    context = multiprocessing.get_context("fork")
    said = context.Queue()
    context.Process(target=try_all, args=(said,)).start()
    return [cells[i] for i in said.get(timeout=SECONDS)]


def outcome(k, cells, tests, last=""):
    context = multiprocessing.get_context("fork")
    said = context.Queue()
    worker = context.Process(target=survive, args=(k, cells, tests, last, said))
    worker.start()
    ends = time.monotonic() + SECONDS
    result = None, f"no test failed in {SECONDS} s"
    while time.monotonic() < ends:
        try:
            result = said.get(timeout=1)
            break
        except Exception:
            if not worker.is_alive() and said.empty():
                result = "a crash", f"exit code {worker.exitcode}"
                break
    worker.join(1)
    if worker.is_alive():
        worker.kill()
    return result


def run_some(implementation, count, seed, only, new):
    """Those of one implementation: a process can import only one."""
    import warnings

    sys.path[:0] = [str(LIB), str(ROOT / "test")]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(LIB), os.environ.get("PYTHONPATH", "")])
    warnings.simplefilter("ignore")
    os.chdir(ROOT)
    import torch

    import clampgrad

    assert clampgrad.implementation == implementation
    torch.set_num_threads(1)
    found = part_of(implementation)
    cells, results = chosen_cells(count, seed), last_results() | found
    mutants = [
        (k, m)
        for k, m in enumerate(listed(), 1)
        if m["file"].startswith(PORTABLE) == (implementation == "portable")
        and only in name(m)
        and not (new and name(m) in results)
        and "changes_nothing" not in m
    ]
    if not mutants:
        return

    holding = unbroken(cells)
    if implementation == "compiled" and len(holding) < len(cells):
        sys.exit("cells fail unbroken: make test says which")
    cells = holding  # the portable implementation has limits (docs/limits.md)
    last = {n: r["killed_by"] or "" for n, r in results.items()}

    def try_one(numbered):
        k, mutant = numbered
        start, some = time.monotonic(), cells if in_a_cell(mutant) else []
        killed, error = outcome(k, some, tests_of(mutant), last.get(name(mutant), ""))
        took = round(time.monotonic() - start, 1)
        how = error and error.replace(f"{TREE}{os.sep}", "")
        return {"killed_by": killed, "how": how, "seconds": took}

    with ThreadPoolExecutor(int(os.environ.get("MAX_JOBS", 2))) as pool:
        for (k, mutant), result in zip(mutants, pool.map(try_one, mutants)):
            found[name(mutant)] = result
            (WORK / f"{implementation}.json").write_text(json.dumps(found))
            said = "killed" if result["killed_by"] else "SURVIVES"
            print(f"{k:>3} {said} {result['seconds']:>5} s  {name(mutant)}", flush=True)
    killers = {r["killed_by"] for r in found.values() if r["killed_by"]}
    failed, error = outcome(0, cells_among(killers), tests_among(killers))
    if failed:
        sys.exit(f"fails unbroken: {failed}\n{error}")


def part_of(implementation):
    """The results so far of a run."""
    part = WORK / f"{implementation}.json"
    return json.loads(part.read_text()) if part.exists() else {}


def last_results():
    if not RESULT.exists():
        return {}
    return {r.pop("mutant"): r for r in json.loads(RESULT.read_text())["results"]}


def run(count, seed, only, new):
    found = last_results() if only or new else {}
    for implementation in ("compiled", "portable"):
        if not new:
            (WORK / f"{implementation}.json").unlink(missing_ok=True)
        command = [sys.executable, __file__, "some", "--implementation", implementation]
        command += ["--cells", str(count), "--seed", str(seed), "--only", only]
        command += ["--new"] * new
        portable = {"CLAMPGRAD_PORTABLE": "1"} if implementation == "portable" else {}
        subprocess.check_call(command, env=os.environ | portable)
        found |= part_of(implementation)
    counted = [name(m) for m in listed() if "changes_nothing" not in m]
    results = [{"mutant": n, **found[n]} for n in counted if n in found]
    killed = sum(r["killed_by"] is not None for r in results)
    import torch

    report = {
        "torch": torch.__version__.split("+")[0],
        "cells": count,
        "seed": seed,
        "seconds": round(sum(r.get("seconds", 0) for r in results)),
        "listed": len(counted),
        "ran": len(results),
        "killed": killed,
        "results": results,
    }
    RESULT.write_text(json.dumps(report, indent=1) + "\n")
    print(f"{killed} of {len(results)} mutants killed")
    return killed < len(results)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["build", "run", "some"])
    parser.add_argument("--cells", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--new", action="store_true")
    parser.add_argument("--implementation")
    given = parser.parse_args()
    if given.what == "build":
        build()
    elif given.what == "run":
        sys.exit(run(given.cells, given.seed, given.only, given.new))
    else:
        run_some(given.implementation, given.cells, given.seed, given.only, given.new)
