"""What a program pays for CLAMPGRAD_GRADIENT, in pairs of processes: without the variable, and with it.

    python benchmarks/variable.py > benchmarks/results/variable.json

The time of `import torch`, and of a step of a small network: two layers of 64 x 64 with a clamp between them,
forward, backward and an update. Processor time, because the wall clock also counts what else the machine
does; the two of a pair take turns in being the first.
"""

import json
import platform
import statistics

from hardware import machine
from importing import printed

PAIRS, STEPS, ROUNDS = 15, 200, 20
SCRIPT = f"""
import time
start = time.process_time()
import torch
imported = time.process_time() - start
torch.manual_seed(0)
torch.set_num_threads(1)
first, second = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.01)
x = torch.randn(64, 64)

def step():
    optimizer.zero_grad()
    second(first(x).clamp(0, 1)).square().mean().backward()
    optimizer.step()

for _ in range(50):
    step()
best = float("inf")
for _ in range({ROUNDS}):
    start = time.process_time()
    for _ in range({STEPS}):
        step()
    best = min(best, time.process_time() - start)
print(imported, best / {STEPS})
"""


def once(variables: dict[str, str]) -> tuple[float, ...]:
    return tuple(map(float, printed(SCRIPT, variables).split()))


def main() -> None:
    import torch

    ways: dict[str, dict[str, str]] = {
        "without": {},
        "inclusive": {"CLAMPGRAD_GRADIENT": "inclusive"},
    }
    found: dict[str, list[tuple[float, ...]]] = {way: [] for way in ways}
    for pair in range(PAIRS):
        for way in sorted(ways, reverse=bool(pair % 2)):
            found[way].append(once(ways[way]))
    result = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": machine(),
        "pairs": PAIRS,
        "seconds of CPU": {
            what: {
                **{way: statistics.median(run[i] for run in runs) for way, runs in found.items()},
                "difference": differences(found["without"], found["inclusive"], i),
            }
            for i, what in enumerate(("import torch", "a step"))
        },
    }
    print(json.dumps(result, indent=1))


def differences(without: list, under: list, i: int) -> dict[str, float]:
    """Of the two of a pair: the median and the quartiles."""
    found = [b[i] - a[i] for a, b in zip(without, under)]
    low, median, high = statistics.quantiles(found, n=4, method="inclusive")
    return {"low": low, "median": median, "high": high}


if __name__ == "__main__":
    main()
