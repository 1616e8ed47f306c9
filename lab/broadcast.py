"""Bounds that are broadcast: time and, on a GPU, peak memory of forward and backward, beside torch's and beside bounds of
x's own size, which read the most.

    python -m lab.broadcast [--device cuda] --out FILE
"""

import argparse
import statistics
import time

import torch

import clampgrad
import records

SHAPES = {"cuda": (64, 256, 56, 56), "cpu": (8, 64, 28, 28)}
ROUNDS = 20


def cases(shape, device):
    """Name -> the operator, and its arguments after x. Those that are learned get a gradient."""

    def bounds(shape, learned=False):
        return [torch.full(shape, v, device=device, requires_grad=learned) for v in (-1.0, 1.0)]

    channels = (shape[1], 1, 1)
    yield "own size", "clamp", bounds(shape)
    yield "per channel", "clamp", bounds(channels)
    yield "per channel, learned", "clamp", bounds(channels, learned=True)
    yield "no dimension", "clamp", bounds(())
    yield "no dimension, learned", "clamp", bounds((), learned=True)
    yield "last dimension", "clamp", bounds(shape[-1:])
    yield "no dimension", "maximum", bounds(())[:1]
    yield "per channel", "maximum", bounds(channels)[:1]


def finished(device):
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def measured(step, device):
    """The median of its times in milliseconds and, on a GPU, the most bytes beside what was there."""
    times = []
    for _ in range(ROUNDS + 3):
        start = finished(device)
        step()
        times.append(1e3 * (finished(device) - start))
    row = {"milliseconds": statistics.median(times[3:])}
    if device == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        step()
        torch.cuda.synchronize()
        row["peak_bytes"] = torch.cuda.max_memory_allocated() - before
    return row


def rows(device):
    x = torch.randn(SHAPES[device], device=device, requires_grad=True)
    g = torch.randn_like(x)
    for bounds, operator, others in cases(x.shape, device):
        wanted = [t for t in (x, *others) if t.requires_grad]
        functions = {"clampgrad": clampgrad, "torch": torch}
        found = {
            name: measured(
                lambda of=of: torch.autograd.grad(getattr(of, operator)(x, *others), wanted, g),
                device,
            )
            for name, of in functions.items()
        }
        found["torch.neg"] = measured(lambda: torch.autograd.grad(torch.neg(x), x, g), device)
        yield {"operator": operator, "bounds": bounds, "functions": found}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--device", default="cpu", choices=[*SHAPES])
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = [*rows(options.device)]
    header = {**records.here(options.device), "commit": records.commit()}
    header["shape"] = SHAPES[options.device]
    records.write(options.out, found, **header)
    for row in found:
        cells = ", ".join(
            f"{name} {r['milliseconds']:.3g} ms"
            + (f" {r['peak_bytes'] >> 20} MiB" if "peak_bytes" in r else "")
            for name, r in row["functions"].items()
        )
        print(f"{row['operator']}, {row['bounds']}: {cells}")


if __name__ == "__main__":
    main()
