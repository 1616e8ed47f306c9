"""What a series does to the time of clamp's backward, and of its family's:

    python benchmarks/patched_backward.py --series proposals/fused-backward --built FOLDER --out FILE

Backward alone; forward mode with its forward. One thread: the best of many calls in a process, the median over
interleaved rounds of processes. hardtanh, which no series changes, is the yardstick.
"""

from __future__ import annotations

import statistics
import time

import torch
import torch.autograd.forward_ad as fwad

from patched import main

SIZES = (1, 2**16, 2**20)
# Of float32 whatever x is, as transformers' T5 has them.
T5 = "clamp(x, low, high), bounds of float32 and no dimension"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def backward(function, *variables):
    y = function(*variables)
    g = torch.ones_like(y)
    return lambda: torch.autograd.grad(y, variables, g, retain_graph=True)


def forward_mode(function, *variables):
    tangents = [torch.ones_like(v) for v in variables]

    def run():
        with fwad.dual_level():
            function(*map(fwad.make_dual, variables, tangents))

    return run


def cases(x):
    """Name: what is timed."""
    low, high = (torch.full_like(x, b).requires_grad_() for b in (0.0, 1.0))
    other = x.detach().flip(0).contiguous().requires_grad_()
    constants = low.detach(), high.detach()
    numbers = torch.tensor(0.0), torch.tensor(1.0)
    return {
        "hardtanh(x, 0, 1)": backward(lambda x: torch.nn.functional.hardtanh(x, 0.0, 1.0), x),
        "clamp(x, 0, 1)": backward(lambda x: x.clamp(0, 1), x),
        "clamp_min(x, 0)": backward(lambda x: x.clamp_min(0), x),
        T5: backward(lambda x: x.clamp(*numbers), x),
        "clamp(x, low, high), one gradient": backward(lambda x: x.clamp(*constants), x),
        "clamp(x, low, high), three": backward(torch.clamp, x, low, high),
        "maximum(x, y)": backward(torch.maximum, x, other),
        "fmax(x, y)": backward(torch.fmax, x, other),
        "forward mode of clamp(x, low, high)": forward_mode(torch.clamp, x, low, high),
        "forward mode of maximum(x, y)": forward_mode(torch.maximum, x, other),
    }


def microseconds(run, n):
    """One call. At N = 1 a thousand are timed together."""
    inner, times = (1000, []) if n == 1 else (1, [])
    for _ in range(15 if n == 1 else 60):
        start = time.perf_counter()
        for _ in range(inner):
            run()
        times.append(1e6 * (time.perf_counter() - start) / inner)
    return min(times)


def measured() -> dict:
    found = {}
    for name, dtype in DTYPES.items():
        for n in SIZES:
            x = torch.linspace(-1, 2, n).to(dtype).requires_grad_()
            assert x.clamp(0, 1).grad_fn.name().startswith("Proved")
            found |= {f"{c}; {name}, {n}": microseconds(f, n) for c, f in cases(x).items()}
    return found


def summary(found: list) -> dict:
    return {k: round(statistics.median(r[k] for r in found), 3) for k in found[0]}


if __name__ == "__main__":
    main(measured, summary, "proposals/fused-backward", 5)
