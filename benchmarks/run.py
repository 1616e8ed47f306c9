"""Times the cases and writes a record: `python -m benchmarks.run`, or `nox -s benchmarks`.

Each allocator setting has processes of its own: fresh pages cost as much as a kernel does, so that
`fixed` (memory is recycled, never returned to the system) shows the kernels and `default` what a
program gets that does nothing about it. There are several for each, whose samples are pooled: where
a process happens to have its memory favours one function or another, by a third at some sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import torch

import records
from benchmarks import bars, cases, memory
from benchmarks.timing import DIRECTIONS, interleaved, step, summary

ROOT = Path(__file__).parent.parent
ALLOCATORS = {
    "fixed": {
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": "1000000000000",
        "MALLOC_TOP_PAD_": "268435456",
    },
    "default": {},
}
PROCESSES = 4
CAPABILITY = "ATEN_CPU_CAPABILITY"  # a lower instruction set than the best one here
GPU_SIZES = (2**12, 2**16, 2**22, 2**28)


def blocks(allocator: str, device: str, elements: list[int]):
    """(group, n, dtype, threads, direction): what is timed together."""
    for group in cases.GROUPS:
        for dtype in cases.DTYPES:
            for n in elements or (group.sizes if device == "cpu" else GPU_SIZES):
                plain = group.name == "clamp" and dtype == "float32"
                if n > 2**22 and not plain and device == "cpu":
                    continue
                if allocator == "default" or device == "cuda":
                    # Several calls of a GPU are timed at once: a large one
                    # says how fast its kernel is.
                    kernels = device == "cuda" and n == max(elements or GPU_SIZES)
                    if group.name in cases.USED:
                        for direction in DIRECTIONS if kernels else ("both",):
                            yield group, n, dtype, 1, direction
                    continue
                for direction in DIRECTIONS if plain else ("both",):
                    yield group, n, dtype, 1, direction
                if group.name == "clamp" and n >= 2**16 and (os.cpu_count() or 1) > 1:
                    yield group, n, dtype, 2, "both"


def finished() -> float:
    """The clock for a GPU, which works on while Python goes on."""
    torch.cuda.synchronize()
    return time.perf_counter()


def time_block(group, n, dtype, threads, direction, seconds, device):
    """A row of the record, with the samples of each function."""
    torch.set_num_threads(threads)
    inputs = cases.inputs(group, n, cases.DTYPES[dtype], device)
    g = torch.randn_like(inputs[0])
    steps = {name: step(f, inputs, g, direction) for name, f in group.timed.items()}
    clock = time.perf_counter if device == "cpu" else finished
    samples = interleaved(steps, seconds, rounds=2, clock=clock)
    return row(group.name, n, dtype, threads, direction, samples)


def row(group, n, dtype, threads, direction, functions):
    row = {"group": group, "n": n, "dtype": dtype, "threads": threads}
    return {**row, "direction": direction, "functions": functions}


def kept(device: str, n: int = 2**20):
    """Bits an element that the graph keeps."""
    for group in cases.GROUPS:
        for dtype in cases.DTYPES:
            inputs = cases.inputs(group, n, cases.DTYPES[dtype], device)
            functions = {
                name: {"saved_bits": 8 * memory.saved_bytes(f, *inputs) / n}
                for name, f in group.functions.items()
            }
            yield {"malloc": "default", **row(group.name, n, dtype, 1, "kept", functions)}


def worker(allocator: str, seconds: float, device: str, elements: list[int]):
    """One process of those that share the time."""
    rows = []
    for block in blocks(allocator, device, elements):
        print(f"malloc: {allocator}, {block[0].name}, {block[1:]}", file=sys.stderr, flush=True)
        rows.append(time_block(*block, seconds / PROCESSES, device))
    print(json.dumps(rows))


def pooled(parts):
    """The same rows in every part: summaries of the samples of all."""
    for rows in zip(*parts, strict=True):
        functions = {
            name: summary([t for row in rows for t in row["functions"][name]])
            for name in rows[0]["functions"]
        }
        yield {**rows[0], "functions": functions}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="for each block of rivals")
    parser.add_argument("--out", type=Path, default=ROOT / "out/cpu.jsonl")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--elements", type=int, nargs="+", help="instead of the usual sizes")
    parser.add_argument("--worker", choices=ALLOCATORS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("there is no GPU")
    if args.worker:
        worker(args.worker, args.seconds, args.device, args.elements)
        return
    rows = []
    for allocator in ALLOCATORS if args.device == "cpu" else ["fixed"]:
        command = [sys.executable, "-m", "benchmarks.run", *sys.argv[1:], "--worker", allocator]
        env = {**os.environ, **ALLOCATORS[allocator]}
        parts = [subprocess.check_output(command, cwd=ROOT, env=env) for _ in range(PROCESSES)]
        rows += [{"malloc": allocator, **row} for row in pooled(map(json.loads, parts))]
    lowered = f"{CAPABILITY}={os.environ[CAPABILITY]} " if CAPABILITY in os.environ else ""
    header = {
        **records.here(),
        "command": f"{lowered}python -m benchmarks.run --seconds {args.seconds:g}",
        "processes": PROCESSES,
    }
    if args.device == "cuda":
        header["machine"] = {"gpu": torch.cuda.get_device_name()}
    records.write(args.out, [*rows, *kept(args.device)], **header)
    print(*bars.ratios(records.read(args.out), args.device), f"wrote {args.out}", sep="\n")


if __name__ == "__main__":
    main()
