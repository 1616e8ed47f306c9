"""Programs of other people's libraries under a pin: `nox -s programs`, an hour.

    PROGRAM_PYTHONS="2.13.0=PYTHON 2.15.0=PYTHON" pytest lab/programs/test_programs.py [-k NAME]

The programs beside this file print hashes of their losses and gradients, and programs.yaml says what a pin must change
in each. Every program runs as a process of its own under every setting; what it prints is compared with another run,
line by line. The first release is one whose own gradient is `inclusive`, the second one whose own is `joint`, so that
the pins of either are compared with the other.

The runs are kept in memory and compared there, so all tests are of one process, without pytest-xdist. If every program
ran, out/programs.jsonl, written at the end, is the record of docs/programs.md.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

import records

HERE = Path(__file__).resolve().parent
OUT = HERE.parents[1] / "out"
PROGRAMS = yaml.safe_load((HERE / "programs.yaml").read_text())
PYTHONS = [pair.split("=", 1) for pair in os.environ.get("PROGRAM_PYTHONS", "").split()]
LIMIT = 1200  # seconds of a program

PORTABLE = {"CLAMPGRAD_PORTABLE": "1"}
COMPILED = {"PROGRAM_COMPILED": "1"}
FIXED = {
    "CLAMPGRAD_VERBOSE": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
}


@dataclass(frozen=True)
class Setting:
    """One way to run a program, and the run that it is compared with."""

    release: int  # which of PYTHONS
    name: str
    pin: str | None = None
    variables: dict[str, str] = field(default_factory=dict)
    like: str | None = None  # the setting that it equals
    changes: str | None = None  # the setting that it differs from, where programs.yaml says

    @property
    def beside(self) -> str | None:
        return self.changes or self.like


SETTINGS = {
    s.name: s
    for s in (
        Setting(0, "stock"),
        Setting(0, "inclusive", "inclusive", like="stock"),
        Setting(0, "joint", "joint", changes="stock"),
        Setting(0, "portable inclusive", "inclusive", PORTABLE, like="stock"),
        Setting(0, "portable joint", "joint", PORTABLE, like="joint"),
        Setting(0, "compiled", None, COMPILED),
        Setting(0, "compiled inclusive", "inclusive", COMPILED, like="compiled"),
        Setting(0, "compiled joint", "joint", COMPILED, changes="compiled"),
        Setting(1, "later stock", like="joint"),
        Setting(1, "later inclusive", "inclusive", like="stock"),
        Setting(1, "later joint", "joint", like="later stock"),
    )
}
Run = dict[str, Any]  # what a process did: lines {label: [hash, number]}, stderr, code, seconds
RAN: dict[tuple[str, str], Run] = {}  # what ended well, by program and setting


def run(script: Path, setting: Setting, python: str, folder: Path) -> Run:
    folder.mkdir(parents=True, exist_ok=True)
    rest = {k: v for k, v in os.environ.items() if not k.startswith(("CLAMPGRAD_", "PROGRAM_"))}
    # One cache of graphs for all runs: its keys must tell pins apart.
    env = {**rest, **FIXED, "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
    env |= {"CLAMPGRAD_GRADIENT": setting.pin} if setting.pin else {}
    start = time.monotonic()
    ended = subprocess.run(
        [python, script],
        env=env | setting.variables,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    found = re.findall(r"^(.+) \| (\w+) \| (\S+)$", ended.stdout, re.MULTILINE)
    lines = {label: [digest, number] for label, digest, number in found}
    stderr, code = ended.stderr[-10_000:], ended.returncode
    if len(lines) < len(found):
        stderr, code = f"{stderr}\nit prints a label twice", code or 1
    seconds = round(time.monotonic() - start, 1)
    return {"lines": lines, "stderr": stderr, "code": code, "seconds": seconds}


def ran(name: str, setting: Setting) -> Run:
    if done := RAN.get((name, setting.name)):
        return done
    done = run(HERE / f"{name}.py", setting, PYTHONS[setting.release][1], OUT / "program-runs")
    if not done["code"]:
        RAN[name, setting.name] = done
    return done


# ---- Judging -------------------------------------------------------------------------------------


def reached(stderr: str) -> dict[str, int]:
    """How many calls of each operator the pin reached."""
    found: dict[str, int] = {}
    for calls in re.findall(r"clampgrad: .* the pin reached [\d,]+ calls?: (.*)", stderr):
        for name, n in re.findall(r"(\w+) (\d+)", calls):
            found[name] = found.get(name, 0) + int(n)
    return found


def first_difference(a: dict, b: dict) -> str | None:
    """The label of the first line that differs."""
    if list(a) != list(b):
        return "the lines themselves"
    return next((label for label in a if a[label][0] != b[label][0]), None)


def judge(setting: Setting, program: dict[str, Any], this: Run, reference: Run | None) -> Run:
    """What is recorded of a run, with what is wrong with it under "failures"."""
    lines, stderr, code, seconds = this.values()
    if code:
        said = [s for s in stderr.splitlines() if s and not s.startswith("clampgrad: ")]
        why = said[-1] if said else "nothing on stderr"
        return {"seconds": seconds, "failures": [f"exit code {code}: {why}"]}
    record: Run = {"seconds": seconds}
    failures = [] if lines else ["it printed nothing"]
    if setting.pin:
        how = "portable" if setting.variables == PORTABLE else "compiled"
        if f": pinned to {setting.pin} ({how} implementation" not in stderr:
            failures.append(f"it was not pinned to {setting.pin} ({how})")
        record["reached"] = reached(stderr)
    if reference:
        first = first_difference(lines, reference["lines"])
        record |= {"compared with": setting.beside, "differs first at": first}
        if first:
            both = (reference["lines"], lines)
            record["from"], record["to"] = (of.get(first, ("", ""))[1] for of in both)
        label = program.get("joint") if setting.changes else None
        if first != label:
            what = f"at {label!r}" if label else "nowhere"
            failures.append(f"it differs from {setting.beside} first at {first!r}, and must {what}")
    return {**record, "failures": failures}


CASES = [
    (name, setting)
    for name in PROGRAMS
    for setting in SETTINGS.values()
    if "compiled" not in setting.name or "eager" not in PROGRAMS[name]
]


@pytest.mark.parametrize("name, setting", CASES, ids=[f"{n}-{s.name}" for n, s in CASES])
def test_program(name, setting):
    if setting.release >= len(PYTHONS):
        pytest.skip("PROGRAM_PYTHONS names no Python with that release")
    reference = ran(name, SETTINGS[setting.beside]) if setting.beside else None
    assert judge(setting, PROGRAMS[name], ran(name, setting), reference)["failures"] == []


# ---- Recording -----------------------------------------------------------------------------------


def recorded(name: str) -> dict[str, Any]:
    """What is recorded of a program."""
    program = PROGRAMS[name]
    kept = {k: RAN[name, k] for k in SETTINGS if (name, k) in RAN}
    runs = {
        k: judge(SETTINGS[k], program, r, kept.get(SETTINGS[k].beside)) for k, r in kept.items()
    }
    return {
        "program": name,
        "libraries": program["needs"],
        "clamp": program.get("clamp", ""),
        "eager": program.get("eager", ""),
        "lines": kept["stock"]["lines"],
        "runs": runs,
    }


def versions(python: str) -> dict[str, str]:
    """Of torch and of what the programs need, with pip's own spelling."""
    listed = subprocess.check_output([python, "-m", "pip", "list", "--format=json"])
    there = {p["name"].lower().replace("_", "-"): p["version"] for p in json.loads(listed)}
    needed = sorted({package for p in PROGRAMS.values() for package in p["needs"]})
    return {package: there.get(package, "") for package in ("torch", *needed)}


@pytest.fixture(scope="module", autouse=True)
def record():
    shutil.rmtree(OUT / "program-runs", ignore_errors=True)  # an Inductor cache of other code
    yield
    if len(RAN) < len(CASES):
        return  # a part was chosen, or did not run
    releases = {release: versions(python) for release, python in PYTHONS}
    machine = f"{platform.machine()}, Python {platform.python_version()}"
    rows = [recorded(name) for name in PROGRAMS]
    records.write(OUT / "programs.jsonl", rows, machine=machine, releases=releases)
