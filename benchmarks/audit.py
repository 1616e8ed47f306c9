"""What an audit costs: `python benchmarks/audit.py --out FILE`.

Training steps of the convolutional stack of model.py on one thread, plain and under audits that look at
one in so many calls, taken in turns. A round is a whole number of periods: an audit with `every=N` looks
at all sites in one step and at none in the next N - 1. Times are of the processor.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.nn.functional as F

import clampgrad
from hardware import machine
from model import stack

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


def measure(rounds: int, period: int, every: tuple[int, ...], batch: int, size: int) -> dict:
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
    return {
        "batch": batch,
        "size": size,
        "call_sites": len(modes[str(every[0])].report),
        "rounds": rounds,
        "seconds": {name: round(value, 5) for name, value in median.items()},
        "overhead": {str(n): round(median[str(n)] / median["plain"] - 1, 4) for n in every},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/audit.json"))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    result = {
        "torch": torch.__version__,
        "machine": machine(),
        **measure(options.rounds, max(EVERY), EVERY, batch=8, size=64),
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
