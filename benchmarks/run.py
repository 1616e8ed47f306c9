"""Times the cases on the CPU and writes a record.

    python -m benchmarks.run [--out FILE] [--seconds S]

Each allocator setting has processes of its own: fresh pages cost as much as a kernel does, so that
`fixed` (memory is recycled, never returned to the system) shows the kernels and `default` what a
program gets that does nothing about it. There are several for each, whose samples are pooled: where a
process happens to have its memory favours one function or another, by a third at some sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import torch

import records
from benchmarks import cases, memory, raw_results
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


def blocks(allocator: str):
    """(group, n, dtype, threads, direction): what is timed together."""
    for group in cases.GROUPS:
        for dtype in cases.DTYPES:
            for n in group.sizes:
                plain = group.name == "clamp" and dtype == "float32"
                if n > 2**22 and not plain:
                    continue
                if allocator == "default":
                    if group.name in cases.USED:
                        yield group, n, dtype, 1, "both"
                    continue
                for direction in DIRECTIONS if plain else ("both",):
                    yield group, n, dtype, 1, direction
                if group.name == "clamp" and n >= 2**16 and (os.cpu_count() or 1) > 1:
                    yield group, n, dtype, 2, "both"


def time_block(group, n, dtype, threads, direction, seconds):
    torch.set_num_threads(threads)
    inputs = cases.inputs(group, n, cases.DTYPES[dtype])
    g = torch.randn(n).to(inputs[0].dtype)
    steps = {name: step(f, inputs, g, direction) for name, f in group.timed.items()}
    samples = interleaved(steps, seconds, rounds=2)
    return [
        {**case(group.name, n, dtype, threads, direction, name), "samples": t}
        for name, t in samples.items()
    ]


def case(group, n, dtype, threads, direction, function):
    """How a row begins."""
    row = {"group": group, "n": n, "dtype": dtype, "threads": threads}
    return {**row, "direction": direction, "function": function}


def kept(n: int = 2**20):
    """Bits an element that the graph keeps."""
    for group in cases.GROUPS:
        for dtype in cases.DTYPES:
            inputs = cases.inputs(group, n, cases.DTYPES[dtype])
            for name, f in group.functions.items():
                row = case(group.name, n, dtype, 1, "kept", name)
                yield {**row, "saved_bits": 8 * memory.saved_bytes(f, *inputs) / n}


def worker(allocator: str, number: int, seconds: float):
    """One process of those that share the time."""
    todo = list(blocks(allocator))
    rows = []
    for i, block in enumerate(todo):
        where = f"malloc: {allocator}, process {number + 1} of {PROCESSES}, {i + 1}/{len(todo)}"
        print(f"\r{where}: {block[0].name}, {block[1]:<30}", end="", file=sys.stderr, flush=True)
        rows += time_block(*block, seconds / PROCESSES)
    print(json.dumps(rows))


def pooled(parts):
    """The same rows in every part: summaries of the samples of all."""
    for rows in zip(*parts, strict=True):
        samples = [t for row in rows for t in row.pop("samples")]
        yield {**rows[0], **summary(samples)}


def run(allocator: str, number: int, seconds: float):
    words = ["--worker", allocator, "--number", str(number), "--seconds", str(seconds)]
    command = [sys.executable, "-m", "benchmarks.run", *words]
    env = {**os.environ, **ALLOCATORS[allocator]}
    return json.loads(subprocess.check_output(command, cwd=ROOT, env=env))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="for each block of rivals")
    parser.add_argument("--out", type=Path, default=ROOT / "out/cpu.jsonl")
    parser.add_argument("--worker", choices=ALLOCATORS, help=argparse.SUPPRESS)
    parser.add_argument("--number", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        worker(args.worker, args.number, args.seconds)
        return
    lowered = f"{CAPABILITY}={os.environ[CAPABILITY]} " if CAPABILITY in os.environ else ""
    rows = []
    for allocator in ALLOCATORS:
        parts = [run(allocator, number, args.seconds) for number in range(PROCESSES)]
        rows += [{"malloc": allocator, **row} for row in pooled(parts)]
    rows += [{"malloc": "default", **row} for row in kept()]
    header = {
        **records.here(),
        "commit": records.commit(),
        "command": f"{lowered}python -m benchmarks.run --seconds {args.seconds:g}",
        "processes": PROCESSES,
    }
    raw_results.write(args.out, rows, **header)
    print(f"\nwrote {args.out}")


if __name__ == "__main__":
    main()
