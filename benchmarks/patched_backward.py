"""What the proposal fused-backward gains, on torch 2.15: `python benchmarks/fused_backward.py --out FILE`.

Backward alone, one thread: the best of many calls in a process, the median over interleaved rounds of
processes (benchmarks/proposals.py). hardtanh, which has an operator of its own in both, is the yardstick.
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

from proposals import rounds

SIZES = (1, 2**16, 2**20)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def cases(x):
    """Name: the function, its variables."""
    low, high = (torch.full_like(x, b).requires_grad_() for b in (0.0, 1.0))
    other = x.detach().flip(0).contiguous().requires_grad_()
    constants = low.detach(), high.detach()
    numbers = x.new_tensor(0.0), x.new_tensor(1.0)
    return {
        "hardtanh(x, 0, 1)": (lambda: torch.nn.functional.hardtanh(x, 0.0, 1.0), [x]),
        "clamp(x, 0, 1)": (lambda: x.clamp(0, 1), [x]),
        "clamp_min(x, 0)": (lambda: x.clamp_min(0), [x]),
        "clamp(x, low, high) of numbers as 0-dim Tensors": (lambda: x.clamp(*numbers), [x]),
        "clamp(x, low, high), one gradient": (lambda: x.clamp(*constants), [x]),
        "clamp(x, low, high), three": (lambda: x.clamp(low, high), [x, low, high]),
        "maximum(x, y)": (lambda: torch.maximum(x, other), [x, other]),
        "fmax(x, y)": (lambda: torch.fmax(x, other), [x, other]),
    }


def microseconds(function, variables, n):
    """One backward. At N = 1 a thousand are timed together."""
    y = function()
    g = torch.ones_like(y)
    inner, times = (1000, []) if n == 1 else (1, [])
    for _ in range(15 if n == 1 else 60):
        start = time.perf_counter()
        for _ in range(inner):
            torch.autograd.grad(y, variables, g, retain_graph=True)
        times.append(1e6 * (time.perf_counter() - start) / inner)
    return min(times)


def measured(library: str) -> dict:
    torch.set_num_threads(1)
    torch.ops.load_library(library)
    found = {}
    for name, dtype in DTYPES.items():
        for n in SIZES:
            x = torch.linspace(-1, 2, n).to(dtype).requires_grad_()
            assert x.clamp(0, 1).grad_fn.name().startswith("Proved")
            found |= {f"{c}; {name}, {n}": microseconds(*f, n) for c, f in cases(x).items()}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/fused-backward.json"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--note", default="", help="what a reader of the times must know")
    options = parser.parse_args()
    found = rounds("proposals/fused-backward", __file__, options.rounds)
    result = {"torch": torch.__version__, "machine": platform.machine(), "note": options.note}
    result["rounds"] = options.rounds
    for side, of_side in found.items():
        keys = of_side[0]
        result[side] = {k: round(statistics.median(r[k] for r in of_side), 3) for k in keys}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--library"]:
        print(json.dumps(measured(sys.argv[2])))
    else:
        main()
