"""Measures the cost of a pin, as kernels and as a function mode: writes records/pin.jsonl.

    python -m benchmarks.pin_cost

One thread, tensors of one element, where overhead shows most. The ways take turns; of each the
quickest round counts, because what disturbs a measurement only ever makes it slower. What costs
nothing before the first pin of a process costs the question which pin holds after it, so a part of the
rounds run in a process without any.
"""

import json
import os
import subprocess
import sys
from contextlib import nullcontext

import torch

import clampgrad
import records
from benchmarks.timing import interleaved

ROUNDS, CALLS, TURNS = 40, 500, 5
x, constant = torch.zeros(1, requires_grad=True), torch.zeros(1)


class FunctionMode(torch.overrides.TorchFunctionMode):
    """The other way to pin; it reaches what is called from Python."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.clamp:
            return clampgrad.clamp(*args, **(kwargs or {}), gradient="inclusive")
        return function(*args, **(kwargs or {}))


def pinned():
    return clampgrad.pin("inclusive")


CASES = {
    "clamp": lambda: torch.clamp(x, 0, 1),
    "clamp and its backward": lambda: torch.autograd.grad(torch.clamp(x, 0, 1), x),
    "clamp, nothing recorded": lambda: torch.clamp(constant, 0, 1),
    "add, which is not pinned": lambda: torch.add(constant, 1),
}
# The cases by process: before any pin, after one, and after one of the portable implementation.
WAYS = {
    "before": {"no pin": nullcontext},
    "after": {"after a pin": nullcontext, "pin": pinned, "function mode": FunctionMode},
    "portable": {"portable, after a pin": nullcontext, "portable, pin": pinned},
}
VARIABLES = {"portable": {"CLAMPGRAD_PORTABLE": "1"}}


def calls(function, mode):
    def run():
        with mode():
            for _ in range(CALLS):
                function()

    return run


def measure(kind):
    """{case: {way: nanoseconds of a call}}."""
    torch.set_num_threads(1)
    if kind != "before":
        pin = pinned()

        def block():
            with pin:
                pass

        block()
    found = {}
    for case, function in CASES.items():
        steps = {way: calls(function, mode) for way, mode in WAYS[kind].items()}
        times = interleaved(steps, 0, ROUNDS, slice_seconds=0)
        found[case] = {way: 1e9 * min(of) / CALLS for way, of in times.items()}
    if kind == "after":
        (times,) = interleaved({"a block": block}, 0, ROUNDS).values()
        found["a block"] = {"microseconds": 1e6 * min(times)}
    return found


def elsewhere(kind):
    """Measures in another process, so that all kinds of rounds take turns."""
    command = [sys.executable, "-m", "benchmarks.pin_cost", kind]
    env = os.environ | VARIABLES.get(kind, {})
    return json.loads(subprocess.check_output(command, text=True, env=env))


def main():
    if sys.argv[1:]:
        print(json.dumps(measure(sys.argv[1])))
        return
    best = {}
    for turn in [elsewhere(kind) for _ in range(TURNS) for kind in WAYS]:
        for case, ways in turn.items():
            of_case = best.setdefault(case, {})
            of_case.update({way: min(s, of_case.get(way, s)) for way, s in ways.items()})
    more = {"a block, microseconds": round(best.pop("a block")["microseconds"], 1)}
    rows = [{"case": case, **{way: round(s) for way, s in of.items()}} for case, of in best.items()]
    records.write("pin", rows, **records.here(), **more)


if __name__ == "__main__":
    main()
