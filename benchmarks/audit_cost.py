"""What an audit costs: `python -m benchmarks.audit_cost`.

Training steps of the convolutional stack of model.py on one thread, plain and under audits that look at
one in so many calls, taken in turns. A round is a whole number of periods: an audit with `every=N` looks
at all sites in one step and at none in the next N - 1. Times are of the processor.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from contextlib import nullcontext

import torch
import torch.nn.functional as F

import clampgrad
import records
from benchmarks.model import stack

EVERY = (1, 10, 50)


def trainer(batch: int, size: int):
    """A function that takes one step."""
    x = torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(0))
    model = stack(F.relu6)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def seconds(step, mode) -> float:
    with mode:
        began = time.process_time()
        step()
        return time.process_time() - began


def measure(
    rounds: int, period: int, every: tuple[int, ...], batch: int, size: int
) -> tuple[dict, list]:
    """Seconds of a step, each a median over rounds of `period` steps."""
    torch.set_num_threads(1)
    step = trainer(batch, size)
    modes = {"plain": nullcontext(), **{str(n): clampgrad.audit(every=n) for n in every}}
    samples: dict[str, list[float]] = {name: [] for name in modes}
    step()
    for i in range(rounds):
        print(f"round {i + 1} of {rounds}", file=sys.stderr)
        times = dict.fromkeys(modes, 0.0)
        for _ in range(period):
            for name, mode in modes.items():
                times[name] += seconds(step, mode) / period
        for name, value in times.items():
            samples[name].append(value)
    median = {name: statistics.median(times) for name, times in samples.items()}
    header = {"batch": batch, "size": size, "rounds": rounds}
    header["call_sites"] = len(modes[str(every[0])].report)
    rows = [
        {"every": name, "seconds": value, "overhead": value / median["plain"] - 1}
        for name, value in median.items()
    ]
    return header, rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    header, rows = measure(options.rounds, max(EVERY), EVERY, batch=8, size=64)
    records.write("audit", rows, **records.here(), **header)


if __name__ == "__main__":
    main()
