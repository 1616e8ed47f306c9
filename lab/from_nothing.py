"""How long the two commands of README.md take in a fresh clone: records/from-nothing.jsonl.

    python -m lab.from_nothing

Leave the machine alone meanwhile. lab/distro.sh does the same on another system.

The clone is of HEAD, without changes that are not committed. Nothing that pip has kept from before
is used. What is installed before anything is compiled is timed by itself, because it depends on the
network. If a command fails, so does this, and nothing is recorded.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import records

ROOT = Path(__file__).resolve().parent.parent
TESTED = "import sys, torch; print(torch.__version__, sys.version.split()[0])"


def measure(clone: Path) -> tuple[dict, list]:
    """The seconds of each command, one after another, in a clone where nothing has been made."""
    venv, rows = shown("make", "-s", "print-VENV", cwd=clone), []
    for what, *words in (
        ("installing torch", f"{venv}/torch"),
        ("demo", "demo"),
        ("test", "test", "ARGS=--record=out/support.json"),
    ):
        start, env = time.monotonic(), {**os.environ, "PIP_NO_CACHE_DIR": "1"}
        subprocess.run(["make", *words], cwd=clone, env=env, check=True)
        rows.append({"what": what, "seconds": round(time.monotonic() - start, 1)})
    (tests,) = json.loads((clone / "out/support.json").read_text()).values()
    torch, python = shown(f"{clone}/{venv}/bin/python", "-c", TESTED, cwd=clone).split()
    header = {
        "commit": shown("git", "rev-parse", "--short", "HEAD", cwd=clone),
        "torch": torch,
        "python": python,
        "machine": {"cpu": records.processor(), "cores": os.cpu_count()},
        "system": platform.freedesktop_os_release()["PRETTY_NAME"],
        "compiler": shown("c++", "--version", cwd=clone).splitlines()[0],
        "jobs": int(shown("make", "-s", "print-MAX_JOBS", cwd=clone)),
        "passed": sum(file["passed"] for file in tests.values()),
    }
    return header, rows


def shown(*command: str, cwd: Path) -> str:
    return subprocess.check_output(command, cwd=cwd, text=True).strip()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder, "clampgrad")
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        header, rows = measure(clone)
    records.write(*(sys.argv[1:] or ["from-nothing"]), rows, **header)
    print(*rows, sep="\n")


if __name__ == "__main__":
    main()
