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
from collections.abc import Callable, Iterator

import pyperf
import torch

import clampgrad
from benchmarks import cases
from benchmarks.timing import step

SIZES = (1, 2**12, 2**20)
CONTROLS = ("torch.neg", "torch.sub")
Make = Callable[[], Callable[[], object]]


def eager() -> Iterator[tuple[str, Make]]:
    """Forward and backward of what the benchmarks time of ours."""
    for group in cases.GROUPS:
        for name, function in group.functions.items():
            if not (name == group.ours or "clampgrad" in name or name in CONTROLS):
                continue
            for dtype in cases.SHORT_DTYPES:
                for n in (n for n in SIZES if n in group.sizes):
                    key = f"{group.name}, {name}, {dtype}, {n}"
                    yield key, functools.partial(both, group, function, cases.DTYPES[dtype], n)


def both(group, function, dtype, n):
    inputs = cases.inputs(group, n, dtype)
    return step(function, inputs, torch.randn(n).to(dtype), "both")


def composed() -> Iterator[tuple[str, Make]]:
    """The path that is made of torch's operators."""
    for gradient in ("min_norm", "half", "joint"):
        for what in ("jvp", "grad", "double backward"):
            yield f"{what} of clamp, {gradient}", functools.partial(differentiated, gradient, what)


def differentiated(gradient, what):
    x = torch.randn(2**12)
    clamp = functools.partial(clampgrad.clamp, min=-1, max=1, gradient=gradient)
    if what == "jvp":
        return lambda: torch.func.jvp(clamp, (x,), (x,))
    slope = torch.func.grad(lambda x: clamp(x).square().sum())
    return (lambda: slope(x)) if what == "grad" else lambda: torch.func.jvp(slope, (x,), (x,))


def timed(make: Make, loops: int) -> float:
    call = once(make)
    start = time.perf_counter()
    for _ in range(loops):
        call()
    return time.perf_counter() - start


once = functools.cache(lambda make: make())

if __name__ == "__main__":
    torch.set_num_threads(1)
    runner = pyperf.Runner(program_args=("-m", "benchmarks.compare"))
    runner.parse_args().inherit_environ = ["PYTHONPATH", "ONLY"]
    for key, make in (*eager(), *composed()):
        if os.environ.get("ONLY", "") in key:
            runner.bench_time_func(key, functools.partial(timed, make))
