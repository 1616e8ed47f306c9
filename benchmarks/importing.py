"""What `import clampgrad` takes after `import torch`, for both implementations.

    python benchmarks/importing.py > benchmarks/results/importing.json

In fresh interpreters, alternating, in CPU seconds: the wall clock also counts what else the machine
does.
"""

import json
import os
import platform
import statistics
import subprocess
import sys

from hardware import machine

RUNS = 7
VARIABLES = {"compiled": "CLAMPGRAD_REQUIRE_COMPILED", "portable": "CLAMPGRAD_PORTABLE"}
SCRIPT = """
import time, torch
start = time.process_time()
import clampgrad
print(time.process_time() - start)
"""


def printed(script: str, variables: dict[str, str]) -> str:
    """By a process of its own, with no variable of clampgrad's but these."""
    rest = {k: v for k, v in os.environ.items() if not k.startswith("CLAMPGRAD_")}
    command = [sys.executable, "-c", script]
    return subprocess.run(
        command, env=rest | variables, capture_output=True, text=True, check=True
    ).stdout


def seconds(implementation: str) -> float:
    # Without the entry point, which may import the package at the end of `import torch`.
    variables = {VARIABLES[implementation]: "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    return float(printed(SCRIPT, variables))


def main() -> None:
    import torch

    times: dict[str, list[float]] = {implementation: [] for implementation in VARIABLES}
    for _ in range(RUNS):
        for implementation in VARIABLES:
            times[implementation].append(seconds(implementation))
    result = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": machine(),
        "runs": RUNS,
        "seconds of CPU": {
            name: {"median": statistics.median(found), "min": min(found), "max": max(found)}
            for name, found in times.items()
        },
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
