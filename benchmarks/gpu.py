"""How fast a clamp and its gradient are on the GPU, beside torch's own and beside a plain copy.

    python -m benchmarks.gpu [--out FOLDER]          # gpu.json and gpu.md

Each contender is captured in a CUDA graph, forward and backward; rounds of all contenders are
interleaved, timed by events, and medians compared. Before that its gradient is checked. With
`--device cpu` everything runs but the graphs: for trying the script, not for figures.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

import clampgrad
from benchmarks.memory import saved_bytes

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Contender:
    name: str
    function: Callable[..., torch.Tensor]
    inputs: int
    # Bytes an element that its kernels move, forward and backward, from the bytes of an element.
    bytes: Callable[[int], float] | None = None


def torch_clamp(x):
    return torch.clamp(x, 0, 6)


def our_clamp(convention):
    return lambda x: clampgrad.clamp(x, 0, 6, gradient=convention)


# Counted from the kernels each launches: relu and hardtanh read and write in the forward, and read
# two and write one in the backward; torch.clamp compares twice, joins and selects; torch.maximum
# compares, halves, selects and fills for each of its two gradients.
CONTENDERS = [
    Contender("clampgrad.clamp", our_clamp("min_norm"), 1, lambda s: 4 * s + 2 / 8),
    Contender("clampgrad.clamp, half", our_clamp("half"), 1, lambda s: 4 * s + 4 / 8),
    Contender("torch.clamp", torch_clamp, 1, lambda s: 6 * s + 6),
    Contender("F.hardtanh", lambda x: F.hardtanh(x, 0, 6), 1, lambda s: 5 * s),
    Contender("F.relu6", F.relu6, 1, lambda s: 5 * s),
    Contender("F.relu", F.relu, 1, lambda s: 5 * s),
    Contender("clampgrad.maximum", clampgrad.maximum, 2, lambda s: 6 * s + 4 / 8),
    Contender("torch.maximum", torch.maximum, 2, lambda s: 25 * s + 8),
    Contender("clampgrad.clamp, tensors", clampgrad.clamp, 3, lambda s: 8 * s + 6 / 8),
    Contender("torch.clamp, tensors", torch.clamp, 3),
]
COPY = Contender("copy", lambda x: x, 1, lambda s: 2 * s)  # the limit of what memory gives

# What the project promises: a rival's time over ours, for 2^28 elements or for 4096.
PROMISES = [
    # rival, ours, dtype, elements, at least
    ("torch.clamp", "clampgrad.clamp", "float32", 2**28, 1.75),
    ("torch.clamp", "clampgrad.clamp", "bfloat16", 2**28, 2.0),
    ("F.hardtanh", "clampgrad.clamp", "float32", 2**28, 1.15),
    ("F.hardtanh", "clampgrad.clamp", "bfloat16", 2**28, 1.15),
    ("F.relu", "clampgrad.clamp", "float32", 2**28, 1.15),
    ("F.relu", "clampgrad.clamp", "bfloat16", 2**28, 1.15),
    ("torch.maximum", "clampgrad.maximum", "float32", 2**28, 3.5),
    ("torch.maximum", "clampgrad.maximum", "bfloat16", 2**28, 3.5),
    ("F.relu", "clampgrad.clamp", "float32", 2**12, 1.0),
    ("F.relu", "clampgrad.clamp", "bfloat16", 2**12, 1.0),
]
LEAST_BANDWIDTH = 0.9  # of a copy's


@dataclass
class Result:
    contender: str
    dtype: str
    elements: int
    seconds: float  # the median; forward and backward
    spread: float  # between the quartiles, over the median
    bytes: float | None
    of_copy_bandwidth: float | None
    saved_bytes: int


def run_once(c: Contender, inputs: list[torch.Tensor], g: torch.Tensor) -> Callable[[], object]:
    """Forward and backward, or the copy."""
    if c is COPY:
        target = torch.empty_like(g)
        return lambda: target.copy_(g)
    leaves = inputs[: c.inputs]
    return lambda: torch.autograd.grad(c.function(*leaves), leaves, g)


def captured(run: Callable[[], object], pool: object) -> Callable[[], object]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        run()  # nothing is kept: the next capture may have the memory
    return graph.replay


def make_inputs(dtype: torch.dtype, n: int, device: str) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Values around the bounds 0 and 6, some exactly there; the Tensor bounds are around them."""
    torch.manual_seed(0)
    x = torch.empty(n, dtype=dtype, device=device).uniform_(-3, 9)
    x[::101] = 0
    lo = torch.empty_like(x).uniform_(-1, 1)
    hi = torch.empty_like(x).uniform_(5, 7)
    g = torch.empty_like(x).uniform_(-1, 1)
    return [t.requires_grad_() for t in (x, lo, hi)], g


def check(device: str) -> None:
    """The gradients on this device are those of the composed path on the CPU."""
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        for n in (1, 65, 1023, 100_003):
            inputs, g = make_inputs(dtype, n, "cpu")
            for c in CONTENDERS:
                if not c.name.startswith("clampgrad"):
                    continue
                args = [t.detach() for t in inputs[: c.inputs]]
                expected = torch.func.vjp(c.function, *args)[1](g)
                leaves = [t.to(device).requires_grad_() for t in args]
                actual = torch.autograd.grad(c.function(*leaves), leaves, g.to(device))
                for one, other in zip(actual, expected):
                    if not torch.equal(one.cpu(), other):
                        raise SystemExit(f"{c.name} is wrong: {dtype}, {n} elements")
    print(f"gradients on {device} are right", flush=True)


def timed(call: Callable[[], object], times: int, cuda: bool) -> Callable[[], float]:
    """Calls it so often; what is returned gives the seconds of one, once the device is done."""
    if not cuda:
        start = time.perf_counter()
        for _ in range(times):
            call()
        seconds = (time.perf_counter() - start) / times
        return lambda: seconds
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(times):
        call()
    end.record()
    return lambda: start.elapsed_time(end) / 1e3 / times


def measure(dtype: torch.dtype, n: int, device: str, rounds: int) -> list[Result]:
    inputs, g = make_inputs(dtype, n, device)
    cuda = device == "cuda"
    racers = [*CONTENDERS, COPY]
    calls = [run_once(c, inputs, g) for c in racers]
    if cuda:
        pool = torch.cuda.graph_pool_handle()
        calls = [captured(call, pool) for call in calls]

    times = max(1, min(200, 2**24 // n))
    taken: list[list[Callable[[], float]]] = [[] for _ in calls]
    order = list(range(len(calls)))
    for i in range(rounds + 3):
        random.Random(i).shuffle(order)
        for k in order:
            one = timed(calls[k], times, cuda)
            if i >= 3:  # the first ones warm up
                taken[k].append(one)
    if cuda:
        torch.cuda.synchronize()
    seconds = [[one() for one in ones] for ones in taken]
    copy = COPY.bytes(dtype.itemsize) * n / statistics.median(seconds[-1])

    results = []
    for c, ones in zip(racers, seconds):
        median, quartiles = (
            statistics.median(ones),
            statistics.quantiles(ones, n=4, method="inclusive"),
        )
        moved = c.bytes(dtype.itemsize) * n if c.bytes else None
        results.append(
            Result(
                contender=c.name,
                dtype=str(dtype).removeprefix("torch."),
                elements=n,
                seconds=median,
                spread=(quartiles[2] - quartiles[0]) / median,
                bytes=moved,
                of_copy_bandwidth=moved / median / copy if moved else None,
                saved_bytes=0 if c is COPY else saved_bytes(c.function, *inputs[: c.inputs]),
            )
        )
    return results


def judge(results: list[Result]) -> list[dict]:
    """What was promised, what the bytes would allow, and what was measured."""
    found = {(r.contender, r.dtype, r.elements): r for r in results}
    lines = []
    for rival, ours, dtype, n, least in PROMISES:
        a, b = found.get((rival, dtype, n)), found.get((ours, dtype, n))
        if a and b:
            name = f"{rival} / {ours}, {dtype}, {n}"
            ratio, allowed = a.seconds / b.seconds, a.bytes / b.bytes
            lines.append({"promise": name, "least": least, "bytes": allowed, "measured": ratio})
    for ours in ("clampgrad.clamp", "clampgrad.maximum"):
        for dtype in ("float32", "bfloat16"):
            if r := found.get((ours, dtype, 2**28)):
                name = f"{ours}, {dtype}: bandwidth over a copy's"
                lines.append(
                    {
                        "promise": name,
                        "least": LEAST_BANDWIDTH,
                        "bytes": 1.0,
                        "measured": r.of_copy_bandwidth,
                    }
                )
    return lines


def machine(device: str) -> dict:
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    about = {
        "commit": commit or None,
        "command": " ".join(sys.argv),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_cuda": torch.version.cuda,
        "device": platform.machine(),
    }
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        about |= {
            "device": properties.name,
            "memory_bytes": properties.total_memory,
            "multiprocessors": properties.multi_processor_count,
            "capability": f"{properties.major}.{properties.minor}",
        }
    return about


def markdown(report: dict) -> str:
    m = report["machine"]
    lines = [f"Measured on {m['device']}, torch {m['torch']}, forward and backward.", ""]
    lines += ["| promise | at least | bytes allow | measured |", "| --- | ---: | ---: | ---: |"]
    for p in report["promises"]:
        mark = "" if p["measured"] >= p["least"] else " (missed)"
        lines.append(
            f"| {p['promise']} | {p['least']:.2f} | {p['bytes']:.2f} | {p['measured']:.2f}{mark} |"
        )
    lines += ["", "| | dtype | elements | µs | spread | of a copy's bandwidth | saved bytes |"]
    lines += ["| --- | --- | ---: | ---: | ---: | ---: | ---: |"]
    for r in report["results"]:
        bandwidth = f"{r['of_copy_bandwidth']:.0%}" if r["bytes"] else ""
        lines.append(
            f"| {r['contender']} | {r['dtype']} | {r['elements']} | {r['seconds'] * 1e6:.2f} | "
            f"{r['spread']:.0%} | {bandwidth} | {r['saved_bytes']} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "out/gpu")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--elements", type=int, nargs="+", default=[2**12, 2**16, 2**22, 2**28])
    parser.add_argument("--rounds", type=int, default=21)
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("there is no GPU; --device cpu tries the script without one")

    check(args.device)
    results = []
    for dtype in (torch.float32, torch.bfloat16):
        for n in args.elements:
            start = time.monotonic()
            results += measure(dtype, n, args.device, args.rounds)
            if args.device == "cuda":
                torch.cuda.empty_cache()
            print(f"{dtype}, {n} elements: {time.monotonic() - start:.1f} s", flush=True)
    report = {
        "machine": machine(args.device),
        "promises": judge(results),
        "results": [asdict(r) for r in results],
    }
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "gpu.json").write_text(json.dumps(report, indent=1) + "\n")
    table = markdown(report)
    (args.out / "gpu.md").write_text(table)
    print("\n" + table)


if __name__ == "__main__":
    main()
