"""What a pin costs, as it is made and as a function mode would make it: writes records/pin.jsonl.

    python -m benchmarks.pin_cost

One thread, tensors of one element, where overhead shows most. The ways take turns; of each the
quickest round counts, because what disturbs a measurement only ever makes it slower. What costs
nothing before the first pin of a process costs the question which pin holds after it, so half of the
rounds run in a process without any.
"""

import json
import os
import subprocess
import sys
import time
from contextlib import nullcontext

import torch

import clampgrad
import records

ROUNDS, CALLS, TURNS = 200, 500, 5
x, constant = torch.zeros(1, requires_grad=True), torch.zeros(1)


class FunctionMode(torch.overrides.TorchFunctionMode):
    """The other way to pin; it reaches what is called from Python."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.clamp:
            return clampgrad.clamp(*args, **(kwargs or {}), gradient="inclusive")
        return function(*args, **(kwargs or {}))


CASES = {
    "clamp": lambda: torch.clamp(x, 0, 1),
    "clamp and its backward": lambda: torch.autograd.grad(torch.clamp(x, 0, 1), x),
    "clamp, nothing recorded": lambda: torch.clamp(constant, 0, 1),
    "add, which is not pinned": lambda: torch.add(constant, 1),
}
# In processes of their own, before any pin and of the portable implementation.
BEFORE = {"no pin": nullcontext}
PORTABLE = {
    "portable, after a pin": nullcontext,
    "portable, pin": lambda: clampgrad.pin("inclusive"),
}
WAYS = {
    "after a pin": nullcontext,
    "pin": lambda: clampgrad.pin("inclusive"),
    "function mode": FunctionMode,
}


def seconds(function, calls):
    start = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - start) / calls


def measure(ways, rounds):
    best = {case: dict.fromkeys(ways, float("inf")) for case in CASES}
    for _ in range(rounds):
        for case, function in CASES.items():
            for way, make in ways.items():
                with make():
                    best[case][way] = min(best[case][way], seconds(function, CALLS))
    return best


def one_block():
    pin = clampgrad.pin("inclusive")
    return min(
        seconds(lambda: pin.__enter__().__exit__(None, None, None), 100) for _ in range(ROUNDS)
    )


def elsewhere(kind, **variables):
    """In a process of its own, so that all kinds of round take turns."""
    command = [sys.executable, "-m", "benchmarks.pin_cost", kind]
    return json.loads(subprocess.check_output(command, text=True, env=os.environ | variables))


def main():
    torch.set_num_threads(1)
    if "before" in sys.argv:
        print(json.dumps(measure(BEFORE, ROUNDS // TURNS)))
        return
    with clampgrad.pin("inclusive"):
        pass
    if "portable" in sys.argv:
        print(json.dumps(measure(PORTABLE, ROUNDS // TURNS // 4)))
        return
    turns = []
    for _ in range(TURNS):
        turns += [elsewhere("before"), measure(WAYS, ROUNDS // TURNS)]
        turns += [elsewhere("portable", CLAMPGRAD_PORTABLE="1")]
    best = {c: {} for c in CASES}
    for case, way, s in (
        (c, w, s) for turn in turns for c, ways in turn.items() for w, s in ways.items()
    ):
        best[case][way] = min(s, best[case].get(way, s))
    block = round(1e6 * one_block(), 1)
    rows = [
        {"case": case, **{way: round(1e9 * s) for way, s in ways.items()}}
        for case, ways in best.items()
    ]
    records.write("pin", rows, **records.here(), **{"a block, microseconds": block})


if __name__ == "__main__":
    main()
