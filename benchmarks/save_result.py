"""What the proposal save-result saves, on torch 2.15: `python benchmarks/save_result.py --out FILE`.

The clamp of stock and of the proposal are compiled as `verify` does it, and each runs in a process of
its own. Times are medians over interleaved rounds of those processes.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from pathlib import Path

import torch

from memory import saved_bytes
from proposals import rounds

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


def measured(library: str) -> dict:
    torch.set_num_threads(1)
    torch.ops.load_library(library)
    x = torch.linspace(-2, 8, N).requires_grad_()
    node = outofplace(x).grad_fn.next_functions[0][0].name()
    assert node.startswith("Proved"), node
    return {
        "bytes kept per element": {k: saved_bytes(f, x) / N for k, f in CASES.items()},
        "ms": {k: milliseconds(f, x) for k, f in CASES.items()},
        "clamp(x, 0, 1).mul_(2), backward": changed_after(x),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/save-result.json"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--note", default="", help="what a reader of the times must know")
    options = parser.parse_args()
    found_by_side = rounds("proposals/save-result", __file__, options.rounds)
    result = {"torch": torch.__version__, "machine": platform.machine(), "n": N, "dtype": "float32"}
    result["note"] = options.note
    for side, found in found_by_side.items():
        ms = {k: statistics.median(r["ms"][k] for r in found) for k in CASES}
        result[side] = found[0] | {"ms": {k: round(v, 3) for k, v in ms.items()}}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--library"]:
        print(json.dumps(measured(sys.argv[2])))
    else:
        main()
