"""What a pin costs, as it is made and as a function mode would make it: writes docs/pin.json.

    python benchmarks/pin.py

One thread, tensors of one element, where overhead shows most. The ways take turns; of each the
quickest round counts, because what disturbs a measurement only ever makes it slower.
"""

import json
import platform
import time
from contextlib import nullcontext
from pathlib import Path

import torch

import clampgrad

ROUNDS, CALLS = 200, 500
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
WAYS = {
    "no pin": nullcontext,
    "pin": lambda: clampgrad.pin("inclusive"),
    "function mode": FunctionMode,
}


def seconds(function, calls):
    start = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - start) / calls


def measure():
    best = {case: dict.fromkeys(WAYS, float("inf")) for case in CASES}
    block = float("inf")
    for _ in range(ROUNDS):
        for case, function in CASES.items():
            for way, make in WAYS.items():
                with make():
                    best[case][way] = min(best[case][way], seconds(function, CALLS))
        pin = clampgrad.pin("inclusive")
        block = min(block, seconds(lambda: pin.__enter__().__exit__(), 10))
    return best, block


def main():
    torch.set_num_threads(1)
    best, block = measure()
    found = {
        "torch": torch.__version__,
        "machine": platform.machine(),
        "nanoseconds": {
            c: {w: round(1e9 * s) for w, s in ways.items()} for c, ways in best.items()
        },
        "a block, microseconds": round(1e6 * block),
    }
    path = Path(__file__).parent.parent / "docs/pin.json"
    path.write_text(json.dumps(found, indent=1) + "\n")
    print(path.read_text())


if __name__ == "__main__":
    main()
