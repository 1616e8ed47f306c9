"""What the proposal save-result saves, on torch 2.15: `python -m benchmarks.save_result --out FILE`.

The clamp of stock and of the proposal are compiled as `verify` does it, and each runs in a process of
its own. Times are medians over interleaved rounds of those processes.
"""

from __future__ import annotations

import statistics
import time

import torch

from benchmarks.memory import saved_bytes
from benchmarks.patched import main

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
        "bytes": {k: saved_bytes(f, x) / N for k, f in CASES.items()},
        "ms": {k: milliseconds(f, x) for k, f in CASES.items()},
        "changed after": changed_after(x),
    }


def summary(found: dict) -> tuple[list, dict]:
    rows = []
    for case in CASES:
        row = {"case": case}
        row |= {f"{side}, bytes": rounds[0]["bytes"][case] for side, rounds in found.items()}
        for side, rounds in found.items():
            row[f"{side}, ms"] = round(statistics.median(r["ms"][case] for r in rounds), 3)
        rows.append(row)
    after = {side: rounds[0]["changed after"] for side, rounds in found.items()}
    return rows, {"n": N, "dtype": "float32", "changed after": after}


if __name__ == "__main__":
    main(measured, summary, "proposals/save-result", 7)
