"""How processes end that have used a GPU under load: with stock torch and with clampgrad, with an
autograd function in Python and without. On a GPU two processes, of which one under
compute-sanitizer, ended with "terminate called without an active exception" after all was right;
this counts whose they are. So do processes with the device of testing/mock_device.py, whose
backward runs in a thread of its own too.

    python -m lab.ends --out FILE [--device cuda | mock] [--runs 200] [--at-a-time 16]
                       [--seconds 360]
"""

import argparse
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import records

PROGRAM = """
import sys, torch
library, function, device = sys.argv[1:]
if device == "mock":
    from testing import mock_device
    mock_device.register()
if library == "clampgrad":
    from clampgrad import clamp, maximum
else:
    from torch import clamp, maximum

class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x
    @staticmethod
    def backward(ctx, g):
        return 2 * g

twice = Twice.apply if function == "in Python" else lambda x: 2 * x
x = torch.randn(2**16, device=device, requires_grad=True)
def step():
    maximum(clamp(twice(x), -1, 1), x.detach()).sum().backward()
for _ in range(50):
    step()
assert x.grad.isfinite().all()
print("right", flush=True)
step()  # the last act: the device's thread may still be at it when Python ends
"""


def how_it_ended(library, function, device):
    """Its exit code and whether all was right before; of what failed also the last words."""
    command = [sys.executable, "-c", PROGRAM, library, function, device]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return "did not end"
    if ended.returncode == 0:
        return "0"
    last = (ended.stderr.strip() or "nothing").splitlines()[-1][:100]
    return f"{ended.returncode}, {'right' if 'right' in ended.stdout else 'wrong'} before: {last}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--runs", type=int, default=200, help="of each kind")
    parser.add_argument("--at-a-time", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=360, help="none is started after that")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    kinds = [*product(("torch", "clampgrad"), ("in C++", "in Python"))]
    counts = {kind: Counter() for kind in kinds}

    began = time.monotonic()

    def one(kind):
        if time.monotonic() - began < options.seconds:
            counts[kind][how_it_ended(*kind, options.device)] += 1

    # In turn, so that each kind meets the same load.
    with ThreadPoolExecutor(options.at_a_time) as pool:
        [*pool.map(one, kinds * options.runs)]
    if not all(counts.values()):
        sys.exit("there was no time for a run of each kind")
    rows = [
        {"library": library, "function": function, "ended": dict(counts[library, function])}
        for library, function in kinds
    ]
    where = "cuda" if options.device == "cuda" else "cpu"  # what it ran on: the mock device is none
    header = {**records.here(where), "device": options.device}
    records.write(options.out, rows, **header, at_a_time=options.at_a_time)
    for row in rows:
        print(row["library"], row["function"], row["ended"], sep=", ")


if __name__ == "__main__":
    main()
