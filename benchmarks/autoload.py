"""What `import torch` pays for the pin by environment where CLAMPGRAD_GRADIENT is not set.

    python benchmarks/autoload.py > benchmarks/results/autoload.json

torch looks for entry points in any case; ours adds the import of one small module and a call. Both are
timed in fresh interpreters, in CPU seconds beside those of `import torch` itself.
"""

import json
import os
import platform
import statistics
import subprocess
import sys

from hardware import machine

RUNS = 15
SCRIPT = """
import time
start = time.process_time()
import torch
imported = time.process_time()
import _clampgrad_by_environment
_clampgrad_by_environment.pin()
print(imported - start, time.process_time() - imported)
"""


def main() -> None:
    alone = {k: v for k, v in os.environ.items() if k != "CLAMPGRAD_GRADIENT"}
    alone["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # so that ours is not imported before
    times = []
    for _ in range(RUNS):
        run = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=alone, capture_output=True, text=True, check=True
        )
        times.append(tuple(map(float, run.stdout.split())))
    torch, ours = zip(*times)
    import torch as module

    result = {
        "torch": module.__version__,
        "python": platform.python_version(),
        "machine": machine(),
        "runs": RUNS,
        "seconds of CPU": {
            "import torch": {"median": statistics.median(torch), "max": max(torch)},
            "the entry point": {"median": statistics.median(ours), "max": max(ours)},
        },
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
