"""Times the backward of clamp and its family with and without a series:

    python -m lab.patched --series v2.13.0/joint --out FILE

Both sides are compiled as `verify` compiles them, and each is loaded in processes of its
own, in turn. Backward alone; forward mode with its forward. One thread: the best of many
calls in a process, the median over interleaved rounds of processes. hardtanh, which no
series changes, is the yardstick.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.autograd.forward_ad as fwad

import records
from lab.series import named
from lab.verify import library, upstream_files

SIDES = ("stock", "patched")
SIZES = (1, 2**16, 2**20)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
# Of float32 whatever x is, as transformers' T5 has them.
T5 = "clamp(x, low, high), bounds of float32 and no dimension"


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
        "clamp_min(x, y)": backward(torch.clamp_min, x, other),
        "forward mode of clamp(x, low, high)": forward_mode(torch.clamp, x, low, high),
        "forward mode of maximum(x, y)": forward_mode(torch.maximum, x, other),
        "forward mode of clamp_min(x, y)": forward_mode(torch.clamp_min, x, other),
    }


def microseconds(run, n):
    """One call, on a processor: other processes do not count, but for the caches. At N = 1 a
    thousand are timed together."""
    inner, times = (1000, []) if n == 1 else (1, [])
    for _ in range(15 if n == 1 else 60):
        start = time.process_time()
        for _ in range(inner):
            run()
        times.append(1e6 * (time.process_time() - start) / inner)
    return min(times)


def measure(path):
    """In a process that has one side's library."""
    torch.set_num_threads(1)
    torch.ops.load_library(path)
    times = {}
    for name, dtype in DTYPES.items():
        for n in SIZES:
            x = torch.linspace(-1, 2, n).to(dtype).requires_grad_()
            assert x.clamp(0, 1).grad_fn.name().startswith("Proved")
            times |= {f"{c}; {name}, {n}": microseconds(f, n) for c, f in cases(x).items()}
    return times


def compile_series(name, directory):
    """The libraries of both sides, with stock's formulas and with those of a series. It takes
    minutes."""
    print("compiling both sides", file=sys.stderr)
    release = torch.__version__.split("+")[0]
    libraries = {}
    for side, patches in zip(SIDES, ([], named(name).patches)):
        texts = upstream_files.apply_patches(directory / side, patches, release)
        libraries[side] = library.build_library(directory / side, texts)
    return libraries


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--series", default="v2.13.0/joint")
    parser.add_argument("--out", type=Path, required=True, help="FILE.jsonl")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--note", default="", help="what a reader of the times must know")
    options = parser.parse_args()
    times = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory() as scratch:
        paths = compile_series(options.series, Path(scratch))
        for _ in range(options.rounds):
            for side, path in paths.items():
                command = [sys.executable, "-m", "lab.patched", "--library", str(path)]
                times[side].append(json.loads(subprocess.check_output(command)))
    rows = [
        {"case": c, **{side: statistics.median(r[c] for r in times[side]) for side in SIDES}}
        for c in times["stock"][0]
    ]
    header = {"series": options.series, "note": options.note, "processes": options.rounds}
    records.write(options.out, rows, **records.here(), **header)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--library"]:
        print(json.dumps(measure(sys.argv[2])))
    else:
        main()
