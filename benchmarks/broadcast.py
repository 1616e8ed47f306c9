"""Bounds that are broadcast, forward and backward together: the time beside that of bounds of x's
own size, and on a GPU the memory at the peak beside torch's.

python -m benchmarks.broadcast [--device cuda]

Writes a record, and says which targets are missed: a bound that is a constant takes at most 1.15
times as long as one of x's own size, and no peak is above torch's.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch

import clampgrad
import records
from benchmarks.run import finished
from benchmarks.timing import interleaved, summary

ROOT = Path(__file__).parent.parent
SLOWEST = 1.15  # of what is constant, over bounds of x's own size
FULL = "x's own size"
# Of x, by what is written after a case. A channel of 14 x 14 is no multiple of 8 elements, one of 7
# x 7 none of 4: a vector of a GPU begins in one and ends in the next.
SHAPES = {
    "cpu": {
        "": (8, 64, 56, 56),
        ", channels_last": (8, 64, 56, 56),
        ", 14 x 14": (8, 256, 14, 14),
        ", 7 x 7": (8, 512, 7, 7),
    },
    "cuda": {
        "": (64, 256, 56, 56),
        ", channels_last": (64, 256, 56, 56),
        ", 14 x 14": (256, 1024, 14, 14),
        ", 7 x 7": (256, 2048, 7, 7),
    },
}


def bounds(x: torch.Tensor) -> dict[str, list[torch.Tensor]]:
    """Constant bounds, by how they are broadcast."""
    channels, height, width = x.shape[1:]

    def of(*shape):
        return [x.new_full(shape, bound) for bound in (-1.0, 1.0)]

    return {
        FULL: [b.expand_as(x).contiguous(memory_format=memory_format(x)) for b in of()],
        "no dimension": of(),
        "a channel": of(channels, 1, 1),
        "an image": of(1, height, width),
        "a row": of(width),
        "a sample": of(len(x), 1, 1, 1),
        "a sample and a row": of(len(x), 1, height, 1),
    }


def memory_format(x: torch.Tensor) -> torch.memory_format:
    return torch.contiguous_format if x.is_contiguous() else torch.channels_last


def steps(x: torch.Tensor, g: torch.Tensor, lo: torch.Tensor, hi: torch.Tensor, learned: bool):
    """Ours first, and its rivals."""
    if learned:
        lo, hi = (b.clone().requires_grad_() for b in (lo, hi))
    inputs = [x, lo, hi] if learned else [x]

    def step(function, *args):
        return lambda: torch.autograd.grad(function(*args), inputs, g)

    return {
        "clampgrad.clamp": step(clampgrad.clamp, x, lo, hi),
        "torch.clamp": step(torch.clamp, x, lo, hi),
        **({} if learned else {"clampgrad.maximum": step(clampgrad.maximum, x, lo)}),
        "torch.neg": lambda: torch.autograd.grad(torch.neg(x), x, g),
    }


def of_a_sum(x: torch.Tensor, *bounds) -> dict[str, Callable]:
    """A gradient without dimensions: that of a sum."""
    return {
        "clampgrad.clamp": lambda: torch.autograd.grad(clampgrad.clamp(x, *bounds).sum(), x),
        "torch.clamp": lambda: torch.autograd.grad(torch.clamp(x, *bounds).sum(), x),
        "torch.neg": lambda: torch.autograd.grad(torch.neg(x).sum(), x),
    }


def peak(step: Callable) -> int:
    """Bytes at the most, beyond what was there before."""
    step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    return torch.cuda.max_memory_allocated() - before


def cases(device: str, dtype: torch.dtype):
    """(name, learned, functions)"""
    for where, shape in SHAPES[device].items():
        small = " x " in where
        layout = torch.channels_last if "last" in where else torch.contiguous_format
        x = torch.randn(shape, device=device).to(dtype).contiguous(memory_format=layout)
        g = torch.randn_like(x)
        x.requires_grad_()
        for name, (lo, hi) in bounds(x.detach()).items():
            if small and name not in (FULL, "a channel"):
                continue
            for learned in (False, True) if name != FULL else (False,):
                yield name + where, learned, steps(x, g, lo, hi, learned)
        if not small:
            full = bounds(x.detach())[FULL]
            yield "the gradient of a sum" + where, False, of_a_sum(x, -1, 1)
            yield "the gradient of a sum beside Tensors" + where, False, of_a_sum(x, *full)


def missed(rows: list[dict]):
    """A line for each target that is missed."""
    for row in rows:
        clamp, torch_clamp = (row["functions"][f] for f in ("clampgrad.clamp", "torch.clamp"))
        what = f"{row['dtype']}, {row['case']}{', learned' * row['learned']}"
        layout = row["case"].partition(", ")[2]
        full = next(
            r
            for r in rows
            if r["case"] == ", ".join(filter(None, (FULL, layout))) and r["dtype"] == row["dtype"]
        )
        ratio = clamp["median"] / full["functions"]["clampgrad.clamp"]["median"]
        if not row["learned"] and ratio > SLOWEST:
            yield f"missed: {what}: {ratio:.2f} times {FULL}, target {SLOWEST}"
        if clamp.get("peak", 0) > torch_clamp.get("peak", 0):
            yield f"missed: {what}: a peak of {clamp['peak']} bytes, torch's {torch_clamp['peak']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--seconds", type=float, default=0.5, help="for each case")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--out", type=Path, default=ROOT / "out/broadcast.jsonl")
    args = parser.parse_args()
    torch.set_num_threads(1)
    on_gpu = args.device == "cuda"
    rows = []
    for dtype in args.dtypes:
        for name, learned, functions in cases(args.device, getattr(torch, dtype)):
            clock = finished if on_gpu else time.perf_counter
            samples = interleaved(functions, args.seconds, clock=clock)
            summaries = {f: summary(times) for f, times in samples.items()}
            if on_gpu:
                for f, step in functions.items():
                    summaries[f]["peak"] = peak(step)
            rows.append({"case": name, "learned": learned, "dtype": dtype, "functions": summaries})
            times = ", ".join(f"{f} {1000 * of['median']:.3g} ms" for f, of in summaries.items())
            print(f"{dtype}, {name}{', learned' * learned}: {times}", flush=True)
    header = {**records.here(), "shapes": SHAPES[args.device]}
    if on_gpu:
        header["machine"] = {"gpu": torch.cuda.get_device_name()}
    records.write(
        args.out, rows, command=f"python -m benchmarks.broadcast --device {args.device}", **header
    )
    print(*missed(rows), f"wrote {args.out}", sep="\n")


if __name__ == "__main__":
    main()
