"""Measures the cost of an audit: `python -m benchmarks.audit_cost [ROUNDS]`.

Training steps of a small convolutional network on one thread, plain and under audits that look at one in
so many calls, taken in turns. A round is a whole number of periods: an audit with `every=N` looks at all
sites in one step and at none in the next N - 1. Times are of the processor.
"""

import statistics
import sys
import time
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import nn

import clampgrad
import records
from benchmarks.timing import interleaved

EVERY, PERIOD, ROUNDS = (1, 10, 50), 50, 3
BATCH, SIZE, CHANNELS, WIDE, BLOCKS = 8, 64, 16, 96, 4


class InvertedResidual(nn.Module):
    """Expand, depthwise, project, as in MobileNetV2; https://arxiv.org/abs/1801.04381"""

    def __init__(self):
        super().__init__()
        self.expand = nn.Conv2d(CHANNELS, WIDE, 1, bias=False)
        self.depthwise = nn.Conv2d(WIDE, WIDE, 3, padding=1, groups=WIDE, bias=False)
        self.project = nn.Conv2d(WIDE, CHANNELS, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(c) for c in (WIDE, WIDE, CHANNELS))

    def forward(self, x):
        y = F.relu6(self.norms[0](self.expand(x)))
        y = F.relu6(self.norms[1](self.depthwise(y)))
        return x + self.norms[2](self.project(y))


def trainer():
    """A function that takes one step."""
    first = nn.Conv2d(3, CHANNELS, 3, stride=2, padding=1)
    model = nn.Sequential(first, *(InvertedResidual() for _ in range(BLOCKS)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(BATCH, 3, SIZE, SIZE)

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def main(rounds=ROUNDS):
    torch.set_num_threads(1)
    step = trainer()
    modes = {"plain": nullcontext(), **{str(n): clampgrad.audit(every=n) for n in EVERY}}

    def under(mode):
        def steps():
            for _ in range(PERIOD):
                with mode:
                    step()

        return steps

    steps = {name: under(mode) for name, mode in modes.items()}
    times = interleaved(steps, 0, rounds, slice_seconds=0, clock=time.process_time)
    median = {name: statistics.median(of) / PERIOD for name, of in times.items()}
    rows = [
        {"every": name, "seconds": seconds, "overhead": seconds / median["plain"] - 1}
        for name, seconds in median.items()
    ]
    sites = len(modes["1"].report)
    header = {"batch": BATCH, "size": SIZE, "call_sites": sites, "rounds": rounds}
    records.write("audit", rows, **records.here(), **header)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
