"""What an audit costs: `python -m benchmarks.audit_cost [ROUNDS]`.

Training steps of the convolutional stack of model.py on one thread, plain and under audits that look at
one in so many calls, taken in turns. A round is a whole number of periods: an audit with `every=N` looks
at all sites in one step and at none in the next N - 1. Times are of the processor.
"""

import statistics
import sys
import time
from contextlib import nullcontext

import torch
import torch.nn.functional as F

import clampgrad
import records
from benchmarks.model import images, stack, trainer
from benchmarks.timing import interleaved

EVERY, PERIOD, ROUNDS = (1, 10, 50), 50, 3
BATCH, SIZE = 8, 64


def main(rounds=ROUNDS):
    torch.set_num_threads(1)
    step = trainer(stack(F.relu6), images(BATCH, SIZE))
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
