"""What a compiled function saves over a function of Python in front of it: benchmarks/results/function-calls.json.

    python benchmarks/function_calls.py                  seconds
    python benchmarks/function_calls.py --callgrind      counts instructions too, minutes; needs valgrind

One process, one thread. The two take turns, and which begins changes with every round; a time is the median
of all rounds, a share the median of what it is in each round. A call of a function of Python checks for
the compiler, then calls the compiled one.
"""

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch.compiler import is_dynamo_compiling

from clampgrad import _implementation
from clampgrad.functional import traced
from hardware import machine

RECORD = Path(__file__).parent / "results" / "function-calls.json"
ROUNDS, CALLS, COUNTED = 300, 200, 2000
of_library = _implementation.clamp


def of_python(input, min=None, max=None, *, gradient="min_norm", maximize=False, out=None):
    if is_dynamo_compiling():
        return traced("clamp", input, min, max, gradient=gradient, maximize=maximize)
    return of_library(input, min, max, gradient=gradient, maximize=maximize, out=out)


WAYS = {"compiled": of_library, "Python": of_python}


def cases(f, n):
    """What is called, by what it is."""
    x, constant, g = torch.zeros(n, requires_grad=True), torch.zeros(n), torch.ones(n)
    return {
        "nothing recorded": lambda: f(constant, 0, 1),
        "recorded": lambda: f(x, 0, 1),
        "recorded, a convention by name": lambda: f(x, 0, 1, gradient="inclusive"),
        "recorded, and its backward": lambda: torch.autograd.grad(f(x, 0, 1), x, g),
    }


def seconds(call, times):
    start = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - start) / times


def timed(n):
    calls = {way: cases(f, n) for way, f in WAYS.items()}
    rows = []
    for case in calls["compiled"]:
        samples = {way: [] for way in WAYS}
        for turn in range(ROUNDS):
            for way in list(WAYS)[:: 1 if turn % 2 else -1]:
                samples[way].append(seconds(calls[way][case], CALLS))
        shares = [1 - a / b for a, b in zip(samples["compiled"], samples["Python"])]
        low, median, high = statistics.quantiles(shares, n=4)
        rows.append(
            {
                "case": case,
                "elements": n,
                **{f"{way}, ns": round(1e9 * statistics.median(samples[way])) for way in WAYS},
                "saved": round(median, 4),
                "quartiles": [round(low, 4), round(high, 4)],
            }
        )
    return rows


def instructions(way, case, calls):
    """Of a process that makes so many calls, as callgrind counts them."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out"]
        command += [sys.executable, __file__, "--run", way, case, str(calls)]
        fixed = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONMALLOC": "malloc"}
        run = subprocess.run(command, capture_output=True, text=True, env=fixed)
        return int(re.search(r"Collected : (\d+)", run.stderr)[1])


def counted(case):
    """Instructions per call: what a process with calls has more than one without."""
    return {
        way: round((instructions(way, case, COUNTED) - instructions(way, case, 0)) / COUNTED)
        for way in WAYS
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--callgrind", action="store_true")
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=RECORD)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.run:
        way, case, calls = given.run
        call = cases(WAYS[way], 1)[case]
        call()
        for _ in range(int(calls)):
            call()
        return
    record = {
        "torch": torch.__version__,
        "machine": machine(),
        "python": platform.python_version(),
        "rounds": ROUNDS,
        "rows": timed(1) + timed(2**12),
    }
    if given.callgrind:
        names = "recorded", "recorded, and its backward"
        record["instructions per call"] = {case: counted(case) for case in names}
    given.out.write_text(json.dumps(record, indent=1) + "\n")
    print(given.out.read_text())


if __name__ == "__main__":
    main()
