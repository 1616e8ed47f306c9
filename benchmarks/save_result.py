"""What the proposal save-result saves, on torch 2.15: `python benchmarks/save_result.py --out FILE`.

The clamp of stock and of the proposal are compiled as `verify` does it, and each runs in a process of
its own. Times are medians over interleaved rounds of those processes.
"""

from __future__ import annotations

import statistics
import time

import torch

from memory import saved_bytes
from patched import main

N = 2**20


def intermediate(x):
    """The input of the clamp is no one else's: nothing keeps it but the graph."""
    return x * 1.0


def outofplace(x):
    return torch.clamp(intermediate(x), 0, 6) ** 2


def inplace(x):
    return intermediate(x).clamp_(0, 6) ** 2


def at_the_end(x):
    """Nothing after the clamp keeps its result."""
    return torch.clamp(intermediate(x), 0, 6) + 1


CASES = {
    "clamp(h, 0, 6) ** 2": outofplace,
    "h.clamp_(0, 6) ** 2": inplace,
    "clamp(h, 0, 6) + 1": at_the_end,
}


def milliseconds(function, x, repeats=30):
    """Forward and backward."""
    times = []
    g = torch.ones_like(x)
    for _ in range(repeats):
        start = time.perf_counter()
        torch.autograd.grad(function(x), x, g)
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)


def changed_after(x):
    y = torch.clamp(intermediate(x), 0, 1)
    y.mul_(2)
    try:
        torch.autograd.grad(y.sum(), x)
        return "runs"
    except RuntimeError as error:
        return "raises: " + str(error).partition(":")[0]


def measured() -> dict:
    x = torch.linspace(-2, 8, N).requires_grad_()
    node = outofplace(x).grad_fn.next_functions[0][0].name()
    assert node.startswith("Proved"), node
    return {
        "n": N,
        "dtype": "float32",
        "bytes kept per element": {k: saved_bytes(f, x) / N for k, f in CASES.items()},
        "ms": {k: milliseconds(f, x) for k, f in CASES.items()},
        "clamp(x, 0, 1).mul_(2), backward": changed_after(x),
    }


def summary(found: list) -> dict:
    ms = {k: statistics.median(r["ms"][k] for r in found) for k in CASES}
    return found[0] | {"ms": {k: round(v, 3) for k, v in ms.items()}}


if __name__ == "__main__":
    main(measured, summary, "proposals/save-result", 7)
