"""How fast a clamp and its gradient are on the GPU, beside torch's own and beside a plain copy.

    python -m benchmarks.gpu [--out FOLDER]          # gpu.jsonl, and prints the bars

The cases of cases.py, as run.py times them, but forward and backward are captured in a CUDA graph. With `--device cpu`
everything runs but the graphs: for trying the script, not for figures.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

import records
from benchmarks import cases, raw_results
from benchmarks.memory import saved_bytes
from benchmarks.run import case
from benchmarks.tables import print_bars
from benchmarks.timing import interleaved, step, summary

ROOT = Path(__file__).resolve().parent.parent
GROUPS = [group for group in cases.GROUPS if group.name in cases.USED]


def captured(run, pool):
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


def finished():
    torch.cuda.synchronize()
    return time.perf_counter()


def measure(group, dtype, n, device, rounds):
    inputs = [t.detach().to(device).requires_grad_() for t in cases.inputs(group, n, dtype)]
    g, target = torch.ones_like(inputs[0]), torch.empty_like(inputs[0])
    steps = {name: step(f, inputs, g, "both") for name, f in group.timed.items()}
    steps["copy"] = lambda: target.copy_(g)
    clock = time.perf_counter
    if device == "cuda":
        pool, clock = torch.cuda.graph_pool_handle(), finished
        steps = {name: captured(run, pool) for name, run in steps.items()}
    for name, times in interleaved(steps, 0, rounds, clock=clock).items():
        row = case(group.name, n, str(dtype).removeprefix("torch."), 1, "both", name)
        saved = saved_bytes(group.functions[name], *inputs) if name != "copy" else 0
        yield {"malloc": "fixed", **row, **summary(times), "saved_bytes": saved}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "out/gpu")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--elements", type=int, nargs="+", default=[2**12, 2**16, 2**22, 2**28])
    parser.add_argument("--rounds", type=int, default=21)
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("there is no GPU; --device cpu tries the script without one")
    rows = []
    for group in GROUPS:
        for dtype in cases.DTYPES.values():
            for n in args.elements:
                rows += measure(group, dtype, n, args.device, args.rounds)
                print(f"{group.name}, {dtype}, {n} elements", flush=True)
    header = {**records.here(), "commit": records.commit(), "command": "python -m benchmarks.gpu"}
    if args.device == "cuda":
        header["machine"] = {"cpu": torch.cuda.get_device_name()}
    raw_results.write(f"{args.out}/gpu.jsonl", rows, **header)
    print_bars(f"{args.out}/gpu.jsonl", kind="gpu")


if __name__ == "__main__":
    main()
