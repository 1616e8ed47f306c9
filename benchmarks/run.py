"""Times the cases on the CPU and writes the raw results as JSON.

    python benchmarks/run.py [--full] [--out FILE] [--seconds S]

Each allocator setting has processes of its own: fresh pages cost as much as a kernel does, so that
`fixed` (memory is recycled, never returned to the system) shows the kernels and `default` what a
program gets that does nothing about it. There are several for each, whose samples are pooled: where a
process happens to have its memory favours one function or another, by a third at some sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from rich.progress import Progress

import cases
import clampgrad
import memory
import model
from hardware import machine
from timing import DIRECTIONS, interleaved, step, summary

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


def blocks(allocator: str, full: bool):
    """(group, n, dtype, threads, direction): what is timed together."""
    every_thread = os.cpu_count() or 1
    for group in cases.GROUPS:
        for dtype in cases.DTYPES if full else cases.SHORT_DTYPES:
            for n in group.sizes:
                plain = group.name == "clamp" and dtype == "float32"
                if not full and n > 2**22 and not plain:
                    continue
                if allocator == "default":
                    if group.name in cases.USED:
                        yield group, n, dtype, 1, "both"
                    continue
                for direction in DIRECTIONS if plain or full else ("both",):
                    yield group, n, dtype, 1, direction
                if plain and n >= 2**20 and every_thread > 1:
                    yield group, n, dtype, every_thread, "both"


def time_block(group, n, dtype, threads, direction, seconds, full):
    torch.set_num_threads(threads)
    inputs = cases.inputs(group, n, cases.DTYPES[dtype])
    g = torch.randn(n).to(inputs[0].dtype)
    functions = {k: f for k, f in group.functions.items() if full or k not in group.full}
    steps = {name: step(f, inputs, g, direction) for name, f in functions.items()}
    key = {"group": group.name, "n": n, "dtype": dtype, "threads": threads, "direction": direction}
    samples = interleaved(steps, seconds, rounds=2)
    return [{**key, "function": name, "seconds": t} for name, t in samples.items()]


def kept(n: int = 2**20):
    """Bits an element that the graph keeps, and what a step has resident at most."""
    rows = []
    for group in cases.GROUPS:
        for dtype in cases.SHORT_DTYPES:
            inputs = cases.inputs(group, n, cases.DTYPES[dtype])
            g = torch.ones_like(inputs[0])
            for name, f in group.functions.items():
                row = {"group": group.name, "function": name, "dtype": dtype, "n": n}
                row["saved_bits"] = 8 * memory.saved_bytes(f, *inputs) / n
                row["peak_bytes"] = memory.peak_bytes(step(f, inputs, g, "both"))
                rows.append(row)
    return rows


def kernels(seconds: float, n: int = 2**24):
    """A forward that records its bits, beside a copy to memory that is there already."""
    x, y = 4 * torch.randn(n), torch.empty(n)
    leaf = x.clone().requires_grad_()
    steps = {
        "copy": lambda: y.copy_(x),
        "clamp with its gate": lambda: clampgrad.clamp(leaf, cases.LO, cases.HI),
    }
    result = {"n": n, "bytes": {"copy": 8 * n, "clamp with its gate": 8 * n + n // 8}}
    counts = sorted({1, min(2, os.cpu_count() or 1)})
    result["seconds"] = {}
    for threads in counts:
        torch.set_num_threads(threads)
        samples = interleaved(steps, seconds)
        result["seconds"][str(threads)] = {name: summary(t) for name, t in samples.items()}
    return result


def worker(allocator: str, number: int, full: bool, seconds: float):
    """One process of those that share the time: the first measures what needs one process only. Results
    to standard output, a line of progress for every block to standard error."""
    todo = list(blocks(allocator, full))
    rows = []
    for i, block in enumerate(todo):
        print(f"{i}/{len(todo)} {block[0].name}, {block[1]}", file=sys.stderr, flush=True)
        rows += time_block(*block, seconds / PROCESSES, full)
    result = {"rows": rows}
    if number == 0 and allocator == "fixed":
        torch.set_num_threads(1)
        result["kernels"] = kernels(2 * seconds)
        result["model"] = model.measure(4 * seconds)
    if number == 0 and allocator == "default":
        result["kept"] = kept()
    print(json.dumps(result))


def pooled(parts):
    """The same rows in every part: summaries of the samples of all."""
    for rows in zip(*parts, strict=True):
        yield {**rows[0], "seconds": summary([t for row in rows for t in row["seconds"]])}


def git(*args):
    done = subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip()


def run(allocator, number, args, progress):
    command = [sys.executable, __file__, "--worker", allocator, "--number", str(number)]
    command += ["--seconds", str(args.seconds)] + ["--full"] * args.full
    env = {**os.environ, **ALLOCATORS[allocator]}
    title = f"malloc: {allocator}, process {number + 1} of {PROCESSES}"
    task = progress.add_task(title, total=None)
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, env=env, stdout=out, stderr=subprocess.PIPE, text=True)
        log = []
        for line in process.stderr:
            count, _, what = line.strip().partition(" ")
            done, slash, total = count.partition("/")
            if slash and done.isdigit() and total.isdigit():
                progress.update(task, completed=int(done), total=int(total), description=what)
            else:
                log.append(line)
        if process.wait():
            sys.exit("".join(log))
        progress.update(task, completed=1, total=1, description=title)
        out.seek(0)
        return json.load(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="every dtype, size and direction")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each block of rivals")
    parser.add_argument("--out", type=Path, default=ROOT / "out/cpu.json")
    parser.add_argument("--worker", choices=ALLOCATORS, help=argparse.SUPPRESS)
    parser.add_argument("--number", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        worker(args.worker, args.number, args.full, args.seconds)
        return
    lowered = f"{CAPABILITY}={os.environ[CAPABILITY]} " if CAPABILITY in os.environ else ""
    result = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": machine(),
        "commit": git("describe", "--always", "--dirty", "--exclude", "*"),
        "command": f"{lowered}python benchmarks/run.py --seconds {args.seconds:g}{' --full' * args.full}",
        "processes": PROCESSES,
        "rows": [],
    }
    with Progress() as progress:
        for allocator in ALLOCATORS:
            parts = [run(allocator, number, args, progress) for number in range(PROCESSES)]
            rows = pooled([part.pop("rows") for part in parts])
            result["rows"] += [{"malloc": allocator, **row} for row in rows]
            result |= parts[0]
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()
