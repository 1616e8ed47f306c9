"""Times two builds of clampgrad beside each other: what a change costs, or gains.

    python benchmarks/compare.py BEFORE AFTER [--only TEXT] [--out FILE]

BEFORE and AFTER are folders that have the package `clampgrad` in them, as `setup.py build --build-lib`
leaves it, and go by their names, the commits, in the record; the process that compares them needs the package too, in any build. Each is loaded in a process
of its own, on the same core; the two take turns at every case, and there are several such pairs, because
where a process has its memory changes its times too. A case is judged by the fastest tenths: what else
runs on a machine only ever adds to a time. CONTROLS show how far this can be trusted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

import cases
import clampgrad
from hardware import machine
from run import ALLOCATORS
from timing import DIRECTIONS, step

SIZES = (1, 2**12, 2**16, 2**20)
# A slower case than this is worth a look; smaller differences come and go between runs.
SLOWER = 1.03
# torch's own, in which the builds cannot differ.
CONTROLS = ("torch.neg", "torch.sub")


def of_ours(name: str, first: str) -> bool:
    return name == first or "clampgrad" in name or name in clampgrad.CONVENTIONS


def eager() -> Iterator[tuple[str, Callable[[], object]]]:
    """What the benchmarks time of ours, one thread, every direction."""
    for group in cases.GROUPS:
        if group.name.startswith("compiled"):
            continue
        timed = {
            k: f for k, f in group.functions.items() if of_ours(k, group.ours) or k in CONTROLS
        }
        for dtype in cases.SHORT_DTYPES:
            for n in (n for n in SIZES if n in group.sizes):
                inputs = cases.inputs(group, n, cases.DTYPES[dtype])
                g = torch.randn(n).to(inputs[0].dtype)
                for name, function in timed.items():
                    for direction in DIRECTIONS:
                        key = f"{group.name} | {name} | {dtype} | {n} | {direction}"
                        yield key, step(function, inputs, g, direction)


def composed() -> Iterator[tuple[str, Callable[[], object]]]:
    """The path that is made of torch's operators: forward mode, torch.func, double backward, compiled."""
    conventions = ("min_norm", "half", "joint", "with_grad", "restoring")
    for n in (1, 2**16):
        x, lo, hi = (t.detach() for t in cases.inputs(cases.GROUPS[2], n, torch.float32))
        for gradient in conventions:
            for what, arguments in {"numbers": (-1, 1), "Tensors": (lo, hi)}.items():

                def clamp(x, arguments=arguments, gradient=gradient):
                    return clampgrad.clamp(x, *arguments, gradient=gradient)

                key = f"{what} | {gradient} | float32 | {n}"
                if gradient not in ("with_grad", "restoring"):  # which have no tangent
                    yield (
                        f"jvp of clamp | {key}",
                        lambda f=clamp, x=x: torch.func.jvp(f, (x,), (x,)),
                    )
                yield (
                    f"torch.func.grad of clamp | {key}",
                    lambda f=clamp, x=x: torch.func.grad(lambda x: f(x).sum())(x),
                )
                yield f"double backward of clamp | {key}", lambda f=clamp, x=x: twice(f, x)
        both = torch.compile(lambda x: clampgrad.clamp(x, -1, 1), fullgraph=True)
        leaf = x.clone().requires_grad_()
        yield (
            f"compiled clamp | both | float32 | {n}",
            lambda f=both, leaf=leaf: torch.autograd.grad(f(leaf).sum(), leaf),
        )


def twice(function, x):
    x = x.clone().requires_grad_()
    g = torch.ones_like(x, requires_grad=True)
    (first,) = torch.autograd.grad(function(x), x, g, create_graph=True)
    return torch.autograd.grad(first.sum(), g)


def serve(only: str) -> None:
    """Names its cases, then times the one it is asked for, a slice at a time."""
    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    calls = dict(c for source in (eager, composed) for c in source() if only in c[0])
    print(json.dumps(list(calls)), flush=True)
    for line in sys.stdin:
        name, repeats, seconds = json.loads(line)
        call = calls[name]
        if not repeats:
            for _ in range(5):
                call()
            began = time.perf_counter()
            call()
            repeats = max(1, int(seconds / (time.perf_counter() - began)))
        began = time.perf_counter()
        for _ in range(repeats):
            call()
        print(json.dumps([(time.perf_counter() - began) / repeats, repeats]), flush=True)


class Side:
    """A process that has one of the two builds."""

    def __init__(self, folder: Path, only: str):
        env = {**os.environ, **ALLOCATORS["fixed"], "PYTHONPATH": str(folder.resolve())}
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", __file__, "--serve", "--only", only],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit("a process of one side has ended")
        return json.loads(line)

    def ask(self, *request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self.read()


def compared(sides: list[Side], name: str, rounds: int, seconds: float) -> list[float]:
    """The times of both, in seconds."""
    repeats = [side.ask(name, 0, seconds)[1] for side in sides]
    times: tuple[list[float], list[float]] = ([], [])
    for i in range(rounds):
        for k in (0, 1) if i % 2 else (1, 0):
            times[k].append(sides[k].ask(name, repeats[k], seconds)[0])
    return [statistics.quantiles(t, n=10, method="inclusive")[0] for t in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("before", type=Path, nargs="?")
    parser.add_argument("after", type=Path, nargs="?")
    parser.add_argument("--only", default="", help="cases with this text in their names")
    parser.add_argument("--pairs", type=int, default=4, help="of processes")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=0.004, help="of a slice")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.only)
        return
    if not (options.before and options.after):
        parser.error("two folders are needed")
    found: dict[str, list[list[float]]] = {}
    for pair in range(options.pairs):
        sides = [Side(folder, options.only) for folder in (options.before, options.after)]
        names = [side.read() for side in sides]
        for name in (n for n in names[0] if n in names[1]):
            found.setdefault(name, []).append(
                compared(sides, name, options.rounds, options.seconds)
            )
        for side in sides:
            side.process.kill()
        print(f"pair {pair + 1} of {options.pairs}: {len(found)} cases", file=sys.stderr)
    rows = []
    for name, pairs in found.items():
        before, after = (min(times) for times in zip(*pairs))
        rows.append({"case": name, "before": before, "after": after, "ratio": after / before})
    for row in sorted(rows, key=lambda row: row["ratio"]):
        mark = "  <-- slower" if row["ratio"] > SLOWER else ""
        print(f"{row['ratio']:.3f} {1e6 * row['after']:10.2f} us  {row['case']}{mark}")
    slower = sum(row["ratio"] > SLOWER for row in rows)
    median = statistics.median(row["ratio"] for row in rows)
    print(f"{len(rows)} cases, median {median:.3f}, {slower} slower than {SLOWER}")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        result = {"torch": torch.__version__, "machine": machine(), "pairs": options.pairs}
        result |= {"before": options.before.name, "after": options.after.name}
        result |= {"controls": CONTROLS, "slower": SLOWER, "rows": rows}
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
