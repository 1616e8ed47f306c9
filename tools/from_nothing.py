"""How long the two commands of README.md take in a fresh clone: benchmarks/results/from-nothing.json.

    python tools/from_nothing.py       leave the machine alone meanwhile

The clone is of HEAD, without changes that are not committed. Nothing that pip has kept from before is used. What is
installed before anything is compiled is timed by itself, because it depends on the network. If a command fails, so
does this, and nothing is recorded.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.source_build.machine import processor  # noqa: E402

RECORD = ROOT / "benchmarks/results/from-nothing.json"
TESTED = "import sys, torch; print(torch.__version__, sys.version.split()[0])"


def seconds(command: list[str], clone: Path) -> float:
    environment = {**os.environ, "PIP_NO_CACHE_DIR": "1"}
    start = time.monotonic()
    subprocess.run(command, cwd=clone, env=environment, check=True)
    return time.monotonic() - start


def measure(clone: Path) -> dict:
    """The seconds of each command, one after another, in a clone where nothing has been made."""
    venv = shown("make", "-s", "print-VENV", cwd=clone)
    took = {
        "installing torch": seconds(["make", f"{venv}/torch"], clone),
        "demo": seconds(["make", "demo"], clone),
        "test": seconds(["make", "test"], clone),
    }
    torch, python = shown(f"{clone}/{venv}/bin/python", "-c", TESTED, cwd=clone).split()
    return {
        "commit": shown("git", "rev-parse", "--short", "HEAD", cwd=clone),
        "torch": torch,
        "python": python,
        "machine": {"cpu": processor(), "cores": os.cpu_count()},
        "jobs": int(shown("make", "-s", "print-MAX_JOBS", cwd=clone)),
        "seconds": {name: round(value, 1) for name, value in took.items()},
    }


def shown(*command: str, cwd: Path) -> str:
    return subprocess.check_output(command, cwd=cwd, text=True).strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RECORD)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder, "clampgrad")
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        record = measure(clone)
    options.out.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record["seconds"]))


if __name__ == "__main__":
    main()
