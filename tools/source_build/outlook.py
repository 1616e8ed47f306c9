"""What will be done, and how long it will take on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import machine
from record import Record
from series import ROOT, Refusal

# The run that docs/upstream/build.md reports. Estimates are scaled from it.
RECORDED = ROOT / "docs" / "source_build.json"
# A file whose compilation tells fast machines from slow ones.
PROBE = '#include <map>\n#include <regex>\n#include <random>\nstd::regex r("a*"); int main() {}\n'


NO_CACHE = {"CCACHE_DISABLE": "1", "SCCACHE_RECACHE": "1"}  # which would tell how fast a disk is


def probe(compiler: str) -> float:
    """The seconds that a small file takes here."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "probe.cpp")
        file.write_text(PROBE)
        start = time.monotonic()
        command = [*compiler.split(), "-c", str(file), "-o", f"{scratch}/probe.o"]
        environment = os.environ | NO_CACHE
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            raise Refusal(f"{compiler} compiles no small program:\n{done.stderr.strip()}")
        return round(time.monotonic() - start, 2)


def outlook(record: Record, environment: dict[str, str], minimal: bool) -> str:
    """What will be done, and a guess at the time: that of the recorded run, scaled by the time of a small file and
    by the number of jobs. Only a minimal build has been recorded."""
    jobs = int(environment["MAX_JOBS"])
    compiler = environment.get("CXX") or "c++"
    tree = record.data["tree"]
    lines = [
        f"PyTorch {tree['release']} at {tree['commit'] or 'no commit'}, {jobs} jobs of {compiler}, "
        f"{'minimal' if minimal else 'with the features that it has by default'}."
    ]
    seconds = probe(compiler)
    record.data.setdefault("probe", {"seconds": seconds, "jobs": jobs})
    if not minimal:
        lines.append("How long: nobody has recorded it; expect hours, and see the progress below.")
    elif RECORDED.exists():
        lines.append(how_long(json.loads(RECORDED.read_text()), seconds, jobs))
    build = record.folder.parent
    if not record.has_begun and (build / "CMakeCache.txt").exists():
        lines.append(
            f"What was built in {build} before will be built anew, with the flags of this run."
        )
    lines.append(
        f"Logs, and all that is found: {record.folder}. Interrupted, it goes on from there."
    )
    return "\n".join(lines)


def how_long(recorded: dict[str, Any], seconds: float, jobs: int) -> str:
    slower = seconds / recorded["probe"]["seconds"]
    share = recorded["probe"]["jobs"] / min(jobs, machine.cores())
    steps = [step for state in recorded["states"].values() for step in state.items()]
    builds = sum(found["seconds"] for name, found in steps if name == "build")
    others = sum(found["seconds"] for name, found in steps if name != "build")
    first = recorded["states"]["stock"]["build"]["seconds"]
    return (
        f"How long: about {first * slower * share / 60:.0f} minutes until the first build is there, and "
        f"{(builds * slower * share + others * slower) / 60:.0f} for everything."
    )
