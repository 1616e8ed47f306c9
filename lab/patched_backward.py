"""Times the backward of clamp and its family with and without a series:

    python -m lab.patched_backward --series v2.13.0/joint --built FOLDER --out FILE

Backward alone; forward mode with its forward. One thread: the best of many calls in a process, the median over
interleaved rounds of processes. hardtanh, which no series changes, is the yardstick.
"""

from __future__ import annotations

import statistics
import time

import torch

from lab.backward_cases import DTYPES, cases
from lab.patched import main

SIZES = (1, 2**16, 2**20)


def microseconds(run, n):
    """One call. At N = 1 a thousand are timed together."""
    inner, times = (1000, []) if n == 1 else (1, [])
    for _ in range(15 if n == 1 else 60):
        start = time.perf_counter()
        for _ in range(inner):
            run()
        times.append(1e6 * (time.perf_counter() - start) / inner)
    return min(times)


def measured(only: list[str]) -> dict:
    found = {}
    for name, dtype in DTYPES.items():
        for n in SIZES:
            x = torch.linspace(-1, 2, n).to(dtype).requires_grad_()
            assert x.clamp(0, 1).grad_fn.name().startswith("Proved")
            mine = {c: f for c, f in cases(x).items() if not only or c in only}
            found |= {f"{c}; {name}, {n}": microseconds(f, n) for c, f in mine.items()}
    return found


def summary(found: dict) -> tuple[list, dict]:
    cases = found["stock"][0]
    medians = {
        side: {c: round(statistics.median(r[c] for r in rounds), 3) for c in cases}
        for side, rounds in found.items()
    }
    return [{"case": c, **{side: m[c] for side, m in medians.items()}} for c in cases], {}


if __name__ == "__main__":
    main(measured, summary, "v2.13.0/joint", 5)
