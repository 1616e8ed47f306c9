"""Programs of other people's libraries under a pin: `make check-programs`.

    python -m tools.programs RELEASE=PYTHON RELEASE=PYTHON [--only NAME ...] [--settings NAME ...] [--out FILE]

test/programs/ has the programs, which print hashes of their losses and gradients, and programs.yaml says
what a pin must change in each. Every program runs as a process of its own under every setting; what it prints
is compared with another run, line by line. The first release is one whose own gradient is `inclusive`, the
second one whose own is `joint`, so that the pins of either are compared with the other.

Runs are kept in out/programs-runs.json: what is interrupted goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "test" / "programs"
RECORD = ROOT / "docs" / "programs.json"
LIMIT = 1200  # seconds of a program

PORTABLE = {"CLAMPGRAD_PORTABLE": "1"}
COMPILED = {"PROGRAM_COMPILED": "1"}


@dataclass(frozen=True)
class Setting:
    """One way to run a program, and the run that it is compared with."""

    release: int  # which of those given
    name: str
    pin: str | None = None
    variables: dict[str, str] = field(default_factory=dict)
    like: str | None = None  # the setting that it equals, unless programs.yaml says otherwise
    changes: str | None = None  # the setting that it differs from, where programs.yaml says


SETTINGS = [
    Setting(0, "stock"),
    Setting(0, "inclusive", "inclusive", like="stock"),
    Setting(0, "joint", "joint", changes="stock"),
    Setting(0, "portable inclusive", "inclusive, partial", PORTABLE, like="stock"),
    Setting(0, "portable joint", "joint, partial", PORTABLE, like="joint"),
    Setting(0, "compiled", None, COMPILED),
    Setting(0, "compiled inclusive", "inclusive", COMPILED, like="compiled"),
    Setting(0, "compiled joint", "joint", COMPILED, changes="compiled"),
    Setting(1, "later stock", like="joint"),
    Setting(1, "later inclusive", "inclusive", like="stock"),
    Setting(1, "later joint", "joint", like="later stock"),
]


@dataclass
class Run:
    lines: dict[str, list[str]]  # label: hash and number
    stderr: str
    code: int
    seconds: float

    @property
    def reached(self) -> dict[str, int]:
        """How many calls of each operator the pin reached."""
        found: dict[str, int] = {}
        for calls in re.findall(r"clampgrad: .* the pin reached \d+ calls: (.*)", self.stderr):
            for name, n in re.findall(r"(\w+) (\d+)", calls):
                found[name] = found.get(name, 0) + int(n)
        return found

    @property
    def error(self) -> str:
        """Its last line of complaint, as Python ends with it."""
        lines = [s for s in self.stderr.splitlines() if s and not s.startswith("clampgrad: ")]
        return lines[-1] if lines else f"exit code {self.code}"


# ---- Running -------------------------------------------------------------------------------------

# One process imports torch, under the variable; the programs are forks of it, and spare that import.
FORKS = """
import json, os, runpy, signal, sys
import torch
for line in sys.stdin:
    script, out, err, limit = json.loads(line)
    pid = os.fork()
    if pid == 0:
        for path, fd in ((out, 1), (err, 2)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), fd)
        signal.alarm(limit)
        sys.argv = [script]
        sys.path[0] = os.path.dirname(script)
        runpy.run_path(script, run_name="__main__")
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


def runs(
    setting: Setting, python: str, names: list[str], folder: Path
) -> Iterator[tuple[str, Run]]:
    """Runs programs under a setting; what they leave goes into the folder."""
    ours = ("CLAMPGRAD_", "PROGRAM_")
    rest = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    fixed = {
        "CLAMPGRAD_VERBOSE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        # Of all runs: its keys must tell pins apart.
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
    }
    pin = {"CLAMPGRAD_GRADIENT": setting.pin} if setting.pin else {}
    out, err, at_import = (folder / name for name in ("out", "err", "import"))
    with at_import.open("w") as file:
        process = subprocess.Popen(
            [python, "-c", FORKS],
            env={**rest, **fixed, **pin, **setting.variables},
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
        )
    with process:
        assert process.stdin and process.stdout
        for name in names:
            start = time.monotonic()
            script = str(PROGRAMS / f"{name}.py")
            process.stdin.write(json.dumps([script, str(out), str(err), LIMIT]) + "\n")
            process.stdin.flush()
            code = process.stdout.readline()
            if not code:
                raise RuntimeError(
                    f"{setting.name}: torch is not imported: {at_import.read_text()}"
                )
            found = re.findall(r"^(.+) \| (\w+) \| (\S+)$", out.read_text(), re.MULTILINE)
            lines = {label: [digest, number] for label, digest, number in found}
            told, ended = at_import.read_text() + err.read_text()[-10_000:], int(code)
            if len(lines) < len(found):
                told, ended = f"{told}\nit prints a label twice", ended or 1
            yield name, Run(lines, told, ended, round(time.monotonic() - start, 1))


def first_difference(a: Run, b: Run) -> str | None:
    """The label of the first line that differs."""
    if list(a.lines) != list(b.lines):
        return "the lines themselves"
    return next((label for label in a.lines if a.lines[label][0] != b.lines[label][0]), None)


# ---- Judging -------------------------------------------------------------------------------------


def wanted(setting: Setting, program: dict[str, Any]) -> tuple[str | None, str | None]:
    """(the setting to compare with, the first line that must differ, or None for none)."""
    joint = program.get("joint")
    if setting.release and "of its own" in program:
        own = {"later inclusive": ("later stock", joint), "later joint": ("later stock", None)}
        return own.get(setting.name, (None, None))
    if special := program.get("differs", {}).get(setting.name):
        return setting.changes or setting.like, special["at"]
    return (setting.changes, joint) if setting.changes else (setting.like, None)


def judge(setting: Setting, program: dict[str, Any], found: dict[str, Run]) -> dict[str, Any]:
    """What is recorded of a run, with what is wrong with it under "failures"."""
    this = found[setting.name]
    record: dict[str, Any] = {"seconds": this.seconds}
    failures = []
    cannot = program.get("cannot", {}).get(setting.name)
    if cannot or this.code:
        record["does not run"] = cannot["because"] if cannot else this.error
        if not cannot:
            failures.append(f"exit code {this.code}: {this.error}")
        elif not this.code:
            failures.append("it runs, and programs.yaml says that it does not")
        elif cannot["error"] not in this.stderr:
            failures.append(f"another error than programs.yaml names: {this.error}")
        return {**record, "failures": failures}
    if not this.lines:
        failures.append("it printed nothing")
    if setting.pin:
        how = "portable" if setting.variables == PORTABLE else "compiled"
        if f": pinned to {setting.pin} ({how} implementation" not in this.stderr:
            failures.append(f"it was not pinned to {setting.pin} ({how})")
        record["reached"] = this.reached
    reference, label = wanted(setting, program)
    if reference and reference in found and not found[reference].code:
        first = first_difference(this, found[reference])
        record["compared with"], record["differs first at"] = reference, first
        if first:
            record["from"], record["to"] = (
                run.lines.get(first, ("", ""))[1] for run in (found[reference], this)
            )
        because = program.get("differs", {}).get(setting.name, {}).get("because")
        if setting.release:
            because = because or program.get("of its own")
        if because:
            record["because"] = because
        if first != label:
            what = f"at {label!r}" if label else "nowhere"
            failures.append(f"it differs from {reference} first at {first!r}, and must {what}")
    return {**record, "failures": failures}


def judged(name: str, program: dict[str, Any], found: dict[str, Run]) -> dict[str, Any]:
    """What is recorded of a program."""
    return {
        "libraries": program["needs"],
        "eager": "" if is_compiled(name) else program.get("eager", ""),
        "lines": found["stock"].lines,
        "runs": {s.name: judge(s, program, found) for s in SETTINGS if s.name in found},
    }


def is_compiled(name: str) -> bool:
    return "compiled(" in (PROGRAMS / f"{name}.py").read_text()


def failures(record: dict[str, Any]) -> list[str]:
    """All of them, in words."""
    return [
        f"{name}, {setting}: {failure}"
        for name, program in record["programs"].items()
        for setting, found in program["runs"].items()
        for failure in found["failures"]
    ]


# ---- Recording -----------------------------------------------------------------------------------

VERSIONS = """
import importlib.metadata as m, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = m.version(name)
    except m.PackageNotFoundError:
        found[name] = ""
print(json.dumps(found))
"""


def read() -> dict[str, Any]:
    """programs.yaml."""
    return yaml.safe_load((PROGRAMS / "programs.yaml").read_text())


def versions(python: str, packages: list[str]) -> dict[str, str]:
    return json.loads(subprocess.check_output([python, "-c", VERSIONS, *packages], text=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pythons", metavar="RELEASE=PYTHON", nargs="+")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="run these programs, again")
    parser.add_argument("--settings", nargs="+", metavar="NAME", default=[s.name for s in SETTINGS])
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "programs.json")
    options = parser.parse_args()
    releases = dict(pair.split("=", 1) for pair in options.pythons)
    programs, pythons = read(), list(releases.values())
    kept = ROOT / "out" / "programs-runs.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    done: dict[str, dict[str, Any]] = json.loads(kept.read_text()) if kept.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        for setting in SETTINGS:
            if setting.name not in options.settings or setting.release >= len(pythons):
                continue
            names = [
                name
                for name in options.only or programs
                if ("compiled" not in setting.name or is_compiled(name))
                and (options.only or done.get(name, {}).get(setting.name, {"code": 1})["code"])
            ]
            print(f"==> {setting.name}: {len(names)} programs", flush=True)
            for name, run in runs(setting, pythons[setting.release], names, Path(folder)):
                print(f"    {name}: {run.error if run.code else f'{run.seconds} s'}", flush=True)
                done.setdefault(name, {})[setting.name] = asdict(run)
                kept.write_text(json.dumps(done, indent=1) + "\n")
    packages = sorted({package for p in programs.values() for package in p["needs"]})
    before = json.loads(options.out.read_text()) if options.out.exists() else {}
    record = {
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "releases": {k: versions(python, ["torch", *packages]) for k, python in releases.items()},
        "programs": {
            name: judged(name, program, {k: Run(**run) for k, run in done[name].items()})
            for name, program in programs.items()
            if name in done
        },
        "tests": before.get("tests", {}),
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n")
    bad = failures(record)
    print("\n".join(bad), f"==> {len(record['programs'])} programs, {len(bad)} failures", sep="\n")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
