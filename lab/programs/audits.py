"""What an audit says of some programs beside this file: records/audited.jsonl, for docs/programs.md.

python -m lab.programs.audits 2.13.0=PYTHON 2.15.0=PYTHON
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import records
from lab.programs.test_programs import FIXED, HERE

# Reinforcement learning, metric learning with triplets and margins, and diffusion.
AUDITED = "ppo", "metric_learning", "diffusion"


def audited(python: str, name: str) -> dict:
    """A row of the record: what the audit says of a program, and how many call sites it saw."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("CLAMPGRAD_")} | FIXED
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "audit.json"
        command = [python, "-m", "clampgrad", "audit", "--json", file, HERE / f"{name}.py"]
        subprocess.run(command, env=env, cwd=HERE, check=True, capture_output=True)
        found = json.loads(file.read_text())
    sites = [s for s in found["sites"] if s["moved"]]
    return {
        "torch": found["torch"].partition("+")[0],
        "program": name,
        "call sites": len(sites),
        "of PyTorch's functions": len([s for s in sites if s["through"]]),
        "summary": found["summary"],
        "suspects": [s["change"] for s in found["suspects"]],
        "skipped": found["skipped"],
    }


if __name__ == "__main__":
    pythons = [pair.partition("=")[2] for pair in sys.argv[1:]]
    rows = [audited(python, name) for name in AUDITED for python in pythons]
    records.write(
        "audited", rows, machine=f"{platform.machine()}, Python {platform.python_version()}"
    )
