"""Interleaved timing: every round times every function once, so that all see the same weather."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable

import torch

DIRECTIONS = ("forward", "backward", "both")


def step(function: Callable, inputs: list, g: torch.Tensor, direction: str) -> Callable[[], object]:
    """The function that is repeated. With `backward`, the graph is kept and walked again."""
    if direction == "forward":
        return lambda: function(*inputs)
    if direction == "backward":
        y = function(*inputs)
        return lambda: torch.autograd.grad(y, inputs, g, retain_graph=True)
    return lambda: torch.autograd.grad(function(*inputs), inputs, g)


def interleaved(
    steps: dict[str, Callable],
    seconds: float,
    rounds: int = 7,
    slice_seconds: float = 0.01,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """The seconds per call of every function, one number per round, from at least `rounds` rounds.

    A round gives every function a slice of time, in a random order, because a function leaves the
    caches and the heap to the next. Rounds go on until `seconds` are spent.
    """

    def timed(call, times):
        began = clock()
        for _ in range(times):
            call()
        return (clock() - began) / times

    repeats = {}
    for name, call in steps.items():
        timed(call, 3 if slice_seconds else 1)
        repeats[name] = max(1, int(slice_seconds / timed(call, 1)))
    samples: dict[str, list[float]] = {name: [] for name in steps}
    end, done = time.perf_counter() + seconds, 0
    while done < rounds or time.perf_counter() < end:
        for name, call in random.sample(list(steps.items()), len(steps)):
            samples[name].append(timed(call, repeats[name]))
        done += 1
    return samples


def summary(values: list[float]) -> dict[str, float]:
    """Median, quartiles and number of the samples."""
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": median, "low": low, "high": high, "rounds": len(values)}
