"""What a pin, an audit and the portable implementation add to a program.

python -m benchmarks.overheads pin         records/pin.jsonl
python -m benchmarks.overheads portable    records/portable.jsonl
python -m benchmarks.overheads audit       records/audit.jsonl
"""

import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import clampgrad
import records
from benchmarks import bars
from benchmarks.timing import interleaved
from clampgrad import EXACT

# ---- A pin, as kernels and as a function mode ---------------------------------------------------

CALLS, ROUNDS, TURNS = 500, 40, 5
x, constant = torch.zeros(1, requires_grad=True), torch.zeros(1)
short = torch.zeros(2**14, dtype=torch.bfloat16)
CASES = {
    "clamp": lambda: torch.clamp(x, 0, 1),
    "clamp and its backward": lambda: torch.autograd.grad(torch.clamp(x, 0, 1), x),
    "clamp, nothing recorded": lambda: torch.clamp(constant, 0, 1),
    "the same of 2^14 in bfloat16": lambda: torch.clamp(short, 0, 1),
    "add, which is not pinned": lambda: torch.add(constant, 1),
}


class FunctionMode(torch.overrides.TorchFunctionMode):
    """The other way to pin; it reaches what is called from Python."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.clamp:
            return clampgrad.clamp(*args, **(kwargs or {}), gradient="inclusive")
        return function(*args, **(kwargs or {}))


def pinned():
    return clampgrad.pin("inclusive")


# By process: before any pin, after one, and after one of the portable implementation.
WAYS = {
    "before": {"no pin": nullcontext},
    "after": {"after a pin": nullcontext, "pin": pinned, "function mode": FunctionMode},
    "portable": {"portable, after a pin": nullcontext, "portable, pin": pinned},
}


def pin():
    """Of each way the quickest round counts, because what disturbs a measurement only ever makes it
    slower. Processes take turns, too."""
    best = {}
    for process in list(WAYS) * TURNS:
        command = [sys.executable, "-m", "benchmarks.overheads", "pin_in", process]
        env = {**os.environ, "CLAMPGRAD_PORTABLE": "1" if process == "portable" else "0"}
        for case, ways in json.loads(subprocess.check_output(command, env=env)).items():
            of_case = best.setdefault(case, {})
            of_case.update({way: min(s, of_case.get(way, s)) for way, s in ways.items()})
    block = best.pop("a block")["after"] * 1e6
    rows = [{"case": c, **{way: round(s * 1e9) for way, s in of.items()}} for c, of in best.items()]
    records.write("pin", rows, **records.here(), **{"a block, microseconds": round(block, 1)})


def pin_in(process):
    """Prints {case: {way: seconds of a call}}, on one thread and tensors of one
    element, where overhead shows most."""
    torch.set_num_threads(1)
    one = nullcontext() if process == "before" else pinned()

    def block():
        with one:
            pass

    def repeated(function, mode):
        def run():
            with mode():
                for _ in range(CALLS):
                    function()

        return run

    block()
    seconds = {}
    for case, function in CASES.items():
        steps = {way: repeated(function, mode) for way, mode in WAYS[process].items()}
        times = interleaved(steps, 0, ROUNDS, slice_seconds=0)
        seconds[case] = {way: min(of) / CALLS for way, of in times.items()}
    if process == "after":
        seconds["a block"] = {process: min(interleaved({"": block}, 0, ROUNDS)[""])}
    print(json.dumps(seconds))


# ---- The portable implementation, beside torch --------------------------------------------------

# Elements: calls in a round, rounds. Rounds are short, so that some are undisturbed on a machine
# with other load; large tensors take time of the processor.
PORTABLE_SIZES = {16: (30, 200), 2**20: (1, 12)}
PORTABLE_TURNS = 2
LO, HI = -1.0, 1.0


def portable():
    """Every turn is a process, and the quickest round of all counts."""
    turns = []
    for _ in range(PORTABLE_TURNS):
        command = [sys.executable, "-m", "benchmarks.overheads", "portable_in"]
        environment = {**os.environ, "CLAMPGRAD_PORTABLE": "1"}
        turns.append(json.loads(subprocess.check_output(command, env=environment)))
    rows = []
    for same in zip(*turns, strict=True):
        times = {way: min(row["microseconds"][way] for row in same) for way in WAYS_TO_CLAMP}
        rows.append({**same[0], "microseconds": times})
    records.write("portable", rows, **records.here())
    print(*bars.portable(records.read("portable")), sep="\n")


# What is called, and what is pinned around it.
WAYS_TO_CLAMP = {
    "torch.clamp": lambda _: (torch.clamp, nullcontext),
    "clampgrad.clamp": lambda convention: (
        partial(clampgrad.clamp, gradient=convention),
        nullcontext,
    ),
    "pinned": lambda convention: (torch.clamp, partial(clampgrad.pin, convention)),
}


def portable_in():
    """Prints the rows of one process, on one thread. Torch's own times are
    taken before anything is pinned."""
    torch.set_num_threads(1)
    rows = []
    for way, made in WAYS_TO_CLAMP.items():
        way_rows = []
        for n, (calls, rounds) in PORTABLE_SIZES.items():
            x = torch.randn(n, generator=torch.Generator().manual_seed(0)).requires_grad_()
            for convention in EXACT:
                clamp, block = made(convention)
                for what, call in calls_of(x, clamp).items():
                    key = {"n": n, "gradient": convention, "what": what}
                    seconds = quickest(call, block, calls, rounds)
                    way_rows.append({**key, "microseconds": {way: seconds * 1e6}})
        rows = rows or way_rows
        for row, of_way in zip(rows, way_rows, strict=True):
            row["microseconds"] |= of_way["microseconds"]
    print(json.dumps(rows))


def calls_of(x, clamp):
    v, g = x.detach(), torch.ones_like(x)
    return {
        "nothing recorded": lambda: clamp(v, LO, HI),
        "forward": lambda: clamp(x, LO, HI),
        "forward and backward": lambda: torch.autograd.grad(clamp(x, LO, HI), x, g),
    }


def quickest(call, block, calls, rounds):
    def run():
        for _ in range(calls):
            call()

    with block():
        run()
        clock = time.perf_counter if calls > 1 else time.process_time
        return min(interleaved({"": run}, 0, rounds, 0, clock)[""]) / calls


# ---- An audit ------------------------------------------------------------------------------------

EVERY, PERIOD = (1, 10, 50), 50
BATCH, SIZE, CHANNELS, WIDE, BLOCKS = 8, 64, 16, 96, 4


class InvertedResidual(nn.Module):
    """Expand, depthwise, project, as in MobileNetV2; https://arxiv.org/abs/1801.04381"""

    def __init__(self, activation):
        super().__init__()
        self.activation = activation
        self.expand = nn.Conv2d(CHANNELS, WIDE, 1, bias=False)
        self.depthwise = nn.Conv2d(WIDE, WIDE, 3, padding=1, groups=WIDE, bias=False)
        self.project = nn.Conv2d(WIDE, CHANNELS, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(c) for c in (WIDE, WIDE, CHANNELS))

    def forward(self, x):
        y = self.activation(self.norms[0](self.expand(x)))
        y = self.activation(self.norms[1](self.depthwise(y)))
        return x + self.norms[2](self.project(y))


# A mode is told of the first by Python, of the second by the pin's kernels.
ACTIVATIONS = {"relu6": F.relu6, "clamp": partial(torch.clamp, min=0, max=6)}


def training(activation):
    """A step of a small convolutional network on one thread."""
    torch.set_num_threads(1)
    first = nn.Conv2d(3, CHANNELS, 3, stride=2, padding=1)
    blocks = (InvertedResidual(ACTIVATIONS[activation]) for _ in range(BLOCKS))
    model = nn.Sequential(first, *blocks)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    images = torch.randn(BATCH, 3, SIZE, SIZE)

    def step():
        optimizer.zero_grad()
        model(images).square().mean().backward()
        optimizer.step()

    return step


def audit(rounds=3, *activations):
    """Training steps, plain and under audits that look at one in so many calls, taken in turns. A
    round is a whole number of periods: an audit with `every=N` looks at all sites in one step and
    at none in the next N - 1. Of activations that are not named, the record stays."""
    rounds = int(rounds)  # a word of the command line
    activations = activations or tuple(ACTIVATIONS)
    rows = [r for r in records.read("audit")["rows"] if r["activation"] not in activations]
    for activation in activations:
        step = training(activation)

        def under(mode, step=step):
            def steps():
                for _ in range(PERIOD):
                    with mode:
                        step()

            return steps

        modes = {"plain": nullcontext(), **{str(n): clampgrad.audit(every=n) for n in EVERY}}
        steps = {name: under(mode) for name, mode in modes.items()}
        times = interleaved(steps, 0, rounds, slice_seconds=0, clock=time.process_time)
        median = {name: statistics.median(of) / PERIOD for name, of in times.items()}
        for every, seconds in median.items():
            peak = peak_of(activation, every)
            added = seconds / median["plain"] - 1
            row = {"activation": activation, "every": every, "seconds": seconds}
            rows.append({**row, "overhead": added, "peak_mib": peak})
    header = {"batch": BATCH, "size": SIZE, "call_sites": len(modes["1"].report), "rounds": rounds}
    records.write("audit", rows, **records.here(), **header)


def peak_of(activation, every):
    """The most memory of a process that takes a few steps, in MiB."""
    words = ["-m", "benchmarks.overheads", "peak", activation, every]
    return int(subprocess.check_output([sys.executable, *words])) / 1024


def peak(activation, every):
    with nullcontext() if every == "plain" else clampgrad.audit(every=int(every)):
        step = training(activation)
        for _ in range(5):
            step()
    # Not of getrusage, which begins with the most of the process that started this one.
    status = Path("/proc/self/status").read_text()
    print(status.partition("VmHWM:")[2].split()[0])


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
