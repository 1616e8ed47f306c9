"""Programs of other people's libraries under a pin: `make check-programs`.

    python -m lab.check_programs RELEASE=PYTHON RELEASE=PYTHON [--only NAME ...] [--settings NAME ...] [--out FILE]

lab/programs/ has the programs, which print hashes of their losses and gradients, and programs.yaml says
what a pin must change in each. Every program runs as a process of its own under every setting; what it prints
is compared with another run, line by line. The first release is one whose own gradient is `inclusive`, the
second one whose own is `joint`, so that the pins of either are compared with the other.

Runs are kept in out/program-runs/, a file per setting: what is interrupted goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

import records
from lab.program_runs import PORTABLE, PROGRAMS, ROOT, SETTINGS, Run, Setting, digest, runs

KEPT = ROOT / "out" / "program-runs"


# ---- Judging -------------------------------------------------------------------------------------


def first_difference(a: Run, b: Run) -> str | None:
    """The label of the first line that differs."""
    if list(a.lines) != list(b.lines):
        return "the lines themselves"
    return next((label for label in a.lines if a.lines[label][0] != b.lines[label][0]), None)


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
        "program": name,
        "libraries": program["needs"],
        "clamp": program.get("clamp", ""),
        "eager": "" if is_compiled(name) else program.get("eager", ""),
        "lines": found["stock"].lines,
        "runs": {s.name: judge(s, program, found) for s in SETTINGS if s.name in found},
    }


def is_compiled(name: str) -> bool:
    return "compiled(" in (PROGRAMS / f"{name}.py").read_text()


def failures(rows: list[dict[str, Any]]) -> list[str]:
    """All of them, in words."""
    return [
        f"{row['program']}, {setting}: {failure}"
        for row in rows
        for setting, found in row["runs"].items()
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


def kept(setting: Setting) -> dict[str, Run]:
    """The runs of a setting, by the name of the program: those of programs that have not changed since."""
    path = KEPT / f"{setting.name}.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    return {k: Run(**found[k]) for k in read() if k in found and found[k]["program"] == digest(k)}


def keep(setting: Setting, done: dict[str, Run]) -> None:
    text = json.dumps({name: asdict(run) for name, run in done.items()}, indent=1)
    (KEPT / f"{setting.name}.json").write_text(text + "\n")


def versions(python: str, packages: list[str]) -> dict[str, str]:
    return json.loads(subprocess.check_output([python, "-c", VERSIONS, *packages], text=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pythons", metavar="RELEASE=PYTHON", nargs="+")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="run these programs, again")
    parser.add_argument("--settings", nargs="+", metavar="NAME", default=[s.name for s in SETTINGS])
    parser.add_argument("--out", type=Path, default=ROOT / "out/programs.jsonl")
    options = parser.parse_args()
    releases = dict(pair.split("=", 1) for pair in options.pythons)
    programs, pythons = read(), list(releases.values())
    KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for setting in SETTINGS:
            if setting.name not in options.settings or setting.release >= len(pythons):
                continue
            done = kept(setting)
            names = [
                name
                for name in options.only or programs
                if ("compiled" not in setting.name or is_compiled(name))
                and (options.only or name not in done or done[name].code)
            ]
            if names:
                print(f"==> {setting.name}: programs to run: {len(names)}", flush=True)
            for name, run in runs(setting, pythons[setting.release], names, Path(folder)):
                print(f"    {name}: {run.error if run.code else f'{run.seconds} s'}", flush=True)
                done[name] = run
                keep(setting, done)
    packages = sorted({package for p in programs.values() for package in p["needs"]})
    found = {setting.name: kept(setting) for setting in SETTINGS}
    rows = [
        judged(name, program, {k: done[name] for k, done in found.items() if name in done})
        for name, program in programs.items()
        if name in found["stock"]
    ]
    header = {
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "releases": {k: versions(python, ["torch", *packages]) for k, python in releases.items()},
    }
    records.write(options.out, rows, **header)
    bad = failures(rows)
    print(*bad, f"==> programs: {len(rows)}; failures: {len(bad)}", sep="\n")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
