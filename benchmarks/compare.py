"""Times our functions in one build of clampgrad, by pyperf, to compare it with another:

    PYTHONPATH=BEFORE python -m benchmarks.compare -o before.json --processes 4
    PYTHONPATH=AFTER python -m benchmarks.compare -o after.json --processes 4
    python -m pyperf compare_to before.json after.json --table

BEFORE and AFTER are folders with the package `clampgrad` in them, as `setup.py build --build-lib` leaves it.
torch.neg and torch.sub, in which the two cannot differ, show how far the figures can be trusted.
ONLY=TEXT times the cases with this text in their names.
"""

from __future__ import annotations

import functools
import os
import time

import pyperf
import torch

from benchmarks import cases
from benchmarks.timing import step

SIZES = (1, 2**12, 2**20)
CONTROLS = ("torch.neg", "torch.sub")


def named():
    """{name: (group, function, dtype, n)}, of what the benchmarks time of ours."""
    return {
        f"{group.name}, {name}, {dtype}, {n}": (group, function, cases.DTYPES[dtype], n)
        for group in cases.GROUPS
        for name, function in group.functions.items()
        if name == group.ours or "clampgrad" in name or name in CONTROLS
        for dtype in cases.DTYPES
        for n in SIZES
        if n in group.sizes
    }


@functools.cache
def both(group, function, dtype, n):
    inputs = cases.inputs(group, n, dtype)
    return step(function, inputs, torch.randn(n).to(dtype), "both")


def timed(loops, key):
    call = both(*named()[key])
    start = time.perf_counter()
    for _ in range(loops):
        call()
    return time.perf_counter() - start


if __name__ == "__main__":
    torch.set_num_threads(1)
    runner = pyperf.Runner(program_args=("-m", "benchmarks.compare"))
    runner.parse_args().inherit_environ = ["PYTHONPATH", "ONLY"]
    for key in named():
        if os.environ.get("ONLY", "") in key:
            runner.bench_time_func(key, timed, key)
