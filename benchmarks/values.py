"""Calls that record no gradient, converted modules, and calls of other shapes: each beside a rival.

python -m benchmarks.values

Writes a record, and says which targets of bars.yaml are missed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import clampgrad
import records
from benchmarks import bars
from benchmarks.run import ALLOCATORS, CAPABILITY, PROCESSES, ROOT, pooled
from benchmarks.timing import interleaved, step
from clampgrad._torch.replacements import original

LO, HI = 0.0, 6.0
SHORT = ("bfloat16", "float16")
DTYPES = {name: getattr(torch, name) for name in (*SHORT, "float32")}
SIZES = tuple(2**n for n in (0, 12, 14, 16, 18, 20, 22))
MODULE_SIZES = tuple(2**n for n in (0, 12, 16, 20))
LAYOUT_SIZES = (2**16, 2**20)


def torchs(module: nn.Module) -> nn.Module:
    """One of torch's modules as it is in a process that converts nothing."""
    of = type(module)
    module.__class__ = type(of.__name__, (of,), {"forward": original(of.forward)})
    return module


def modules(make) -> dict[str, nn.Module]:
    converted = clampgrad.nn.convert(make())
    own = getattr(clampgrad.nn, type(converted).__name__)()
    return {"converted": converted, "clampgrad.nn": own, "torch.nn": torchs(make())}


# What is called, of x, y and z: ours first, and its rivals.
VALUES = {
    "clamp": {
        "clampgrad.clamp": lambda x, y, z: clampgrad.clamp(x, LO, HI),
        "torch.neg": lambda x, y, z: torch.neg(x),
        "torch.clamp": lambda x, y, z: torch.clamp(x, LO, HI),
    },
    "clamp_min": {
        "clampgrad.clamp_min": lambda x, y, z: clampgrad.clamp_min(x, LO),
        "torch.neg": lambda x, y, z: torch.neg(x),
        "torch.clamp_min": lambda x, y, z: torch.clamp_min(x, LO),
    },
    "clamp_": {
        "clampgrad.clamp_": lambda x, y, z: clampgrad.clamp_(x, LO, HI),
        "torch.neg_": lambda x, y, z: torch.neg_(x),
        "torch.clamp_": lambda x, y, z: torch.clamp_(x, LO, HI),
    },
    "maximum": {
        "clampgrad.maximum": lambda x, y, z: clampgrad.maximum(x, y),
        "torch.add": lambda x, y, z: torch.add(x, y),
        "torch.maximum": lambda x, y, z: torch.maximum(x, y),
    },
    "fmax": {
        "clampgrad.fmax": lambda x, y, z: clampgrad.fmax(x, y),
        "torch.add": lambda x, y, z: torch.add(x, y),
        "torch.fmax": lambda x, y, z: torch.fmax(x, y),
    },
    "clamp(x, lo, hi)": {
        "clampgrad.clamp": lambda x, y, z: clampgrad.clamp(x, y, z),
        "torch.clamp": lambda x, y, z: torch.clamp(x, y, z),
    },
}
MODULES = {"nn.ReLU6": nn.ReLU6, "nn.Hardtanh": nn.Hardtanh}
LAYOUTS = {
    "channels_last": lambda x: x.view(4, 64, -1, 8).to(memory_format=torch.channels_last),
    "a strided input": lambda x: torch.stack([x, x], -1)[..., 0],
}


def drawn(n: int, dtype: str) -> list[torch.Tensor]:
    """Normal, and scaled so that all sides of the bounds are met often; y is less than z."""
    generator = torch.Generator().manual_seed(0)
    x, y, z = (4 * torch.randn(n, generator=generator) for _ in range(3))
    return [t.to(DTYPES[dtype]) for t in (x, y.abs().neg(), z.abs())]


def cases():
    """(group, n, dtype, threads, direction, what is timed together)"""
    for threads in (1, 2) if (os.cpu_count() or 1) > 1 else (1,):
        for group, functions in VALUES.items():
            for dtype in DTYPES:
                for n in SIZES if threads == 1 else [n for n in SIZES if n >= 2**16]:
                    args = drawn(n, dtype)
                    calls = {f: (lambda f=of, a=args: f(*a)) for f, of in functions.items()}
                    yield group, n, dtype, threads, "values", calls
    for group, make in MODULES.items():
        for dtype in ("bfloat16", "float32"):
            for n in MODULE_SIZES:
                x, *_ = drawn(n, dtype)
                both = modules(make)
                calls = {f: (lambda f=of, x=x: f(x)) for f, of in both.items()}
                yield group, n, dtype, 1, "values", calls
                x = x.clone().requires_grad_()
                calls = {f: (lambda f=of, x=x: f(x)) for f, of in both.items()}
                yield group, n, dtype, 1, "forward", calls
    for group, laid_out in LAYOUTS.items():
        for dtype in ("bfloat16", "float32"):
            for n in LAYOUT_SIZES:
                x = laid_out(drawn(n, dtype)[0]).detach().requires_grad_()
                g = torch.ones(x.shape, dtype=x.dtype)
                functions = {
                    "clampgrad.clamp": lambda x: clampgrad.clamp(x, LO, HI),
                    "torch.neg": torch.neg,
                    "F.relu": F.relu,
                }
                calls = {f: step(of, [x], g, "both") for f, of in functions.items()}
                yield group, n, dtype, 1, "both", calls
    for dtype in ("bfloat16", "float32"):
        for n in LAYOUT_SIZES:
            x = drawn(n, dtype)[0].requires_grad_()
            g = torch.ones_like(x)
            functions = {
                "clampgrad.clamp_": lambda x: clampgrad.clamp_(x.clone(), LO, HI),
                "F.hardtanh_": lambda x: F.hardtanh_(x.clone(), LO, HI),
                "F.relu_": lambda x: F.relu_(x.clone()),
            }
            calls = {f: step(of, [x], g, "both") for f, of in functions.items()}
            yield "clamp_", n, dtype, 1, "both", calls


def worker(seconds: float) -> None:
    rows = []
    for group, n, dtype, threads, direction, calls in cases():
        torch.set_num_threads(threads)
        samples = interleaved(calls, seconds / PROCESSES, rounds=2, slice_seconds=0.002)
        rows.append({"group": group, "n": n, "dtype": dtype, "threads": threads})
        rows[-1] |= {"direction": direction, "functions": samples}
    print(json.dumps(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=0.1, help="for each case")
    parser.add_argument("--out", type=Path, default=ROOT / "out/values.jsonl")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        worker(args.seconds)
        return
    command = [sys.executable, "-m", "benchmarks.values", *sys.argv[1:], "--worker"]
    env = {**os.environ, **ALLOCATORS["fixed"]}
    parts = [subprocess.check_output(command, cwd=ROOT, env=env) for _ in range(PROCESSES)]
    rows = [{"malloc": "fixed", **row} for row in pooled(map(json.loads, parts))]
    lowered = f"{CAPABILITY}={os.environ[CAPABILITY]} " if CAPABILITY in os.environ else ""
    header = {
        **records.here(),
        "command": f"{lowered}python -m benchmarks.values --seconds {args.seconds:g}",
        "processes": PROCESSES,
    }
    records.write(args.out, rows, **header)
    print(*bars.ratios(records.read(args.out), "values"), f"wrote {args.out}", sep="\n")


if __name__ == "__main__":
    main()
