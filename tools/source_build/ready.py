"""What must be there before anything is begun, and how long it will take."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from proofs import TESTS
from record import Record
from series import ROOT, Refusal, Tree

# That of the run which docs/upstream/build.md reports: what an estimate is scaled from.
RECORDED = ROOT / "docs" / "source_build.json"
GIGABYTES = 12  # sources, objects and the libraries that are kept
# What upstream's tests import and requirements.txt may not name, and what our package is built with.
FOR_TESTS = ("expecttest", "hypothesis", "setuptools>=77")
FOR_STYLE = ("lintrunner", "types-")  # in requirements.txt, and neither built nor tested with
# Enough of a C++ file to tell one machine from another.
PROBE = '#include <map>\n#include <regex>\n#include <random>\nstd::regex r("a*"); int main() {}\n'


def check(tree: Tree, series: list[str], environment: dict[str, str], begun: bool) -> None:
    """Refuses with all that is in the way at once."""
    problems = list(in_the_way(tree, environment, begun))
    if problems:
        raise Refusal("\n".join(["this is in the way:", *(f"- {p}" for p in problems)]))
    if not tree.applied():
        for name in series:
            tree.would_take(name)


def in_the_way(tree: Tree, environment: dict[str, str], begun: bool) -> Iterator[str]:
    if missing := missing_packages(tree.path):
        yield (
            f"not installed: {', '.join(missing)}. pip install -r {tree.path}/requirements.txt "
            f"{' '.join(map(shlex.quote, FOR_TESTS))}"
        )
    if sys.platform != "linux":
        yield f"this is {sys.platform}, and the script is for Linux"
    if not re.fullmatch(r"[1-9]\d*", environment["MAX_JOBS"]):
        yield f"MAX_JOBS={environment['MAX_JOBS']} is no number"
    if " " in str(tree.path):
        yield f"{tree.path} has a space in it, which the dynamic linker's variables do not take"
    if gone := [name for name in TESTS if not (tree.path / "test" / name).is_file()]:
        yield f"not in {tree.path}/test: {', '.join(gone)}"
    if changed := tree.changed():
        yield f"changes to commit or stash first: {', '.join(changed)}"
    if not begun and (series := tree.applied()):
        yield f"{series} is in the tree, which is to be built without it first: undo it"
    if not importlib.util.find_spec("pip"):
        yield "no pip in this environment: python -m ensurepip"
    if not shutil.which("ninja"):
        yield "no ninja on PATH: pip install ninja"
    compiler = (environment.get("CXX") or "c++").split()[0]
    if not shutil.which(compiler):
        yield f"no {compiler} on PATH: install a C++ compiler (Debian, Ubuntu: apt install g++ or clang)"
    if empty := empty_submodules(tree.path):
        yield (
            f"submodules without files: {', '.join(empty)}. In {tree.path}: "
            "git submodule sync && git submodule update --init --recursive"
        )
    if not begun:
        free = shutil.disk_usage(tree.path).free >> 30
        if free < GIGABYTES:
            yield f"{free} GiB of disk are free under {tree.path}; a build takes {GIGABYTES}"
        if (other := installed_torch()) and not other.is_relative_to(tree.path):
            yield f"this environment has a torch, in {other}: build in an environment of its own"


def missing_packages(checkout: Path) -> list[str]:
    """Without the versions that requirements.txt asks for: pip sees to these."""
    # Nor what is for another platform or Python.
    lines = [line for line in requirements(checkout / "requirements.txt") if ";" not in line]
    listed = [found[0] for line in lines if (found := re.match(r"[A-Za-z0-9][\w.-]*", line))]
    wanted = dict.fromkeys([*listed, *FOR_TESTS])
    return [w for w in wanted if not is_installed(*w.partition(">=")[::2])]


def requirements(file: Path) -> Iterator[str]:
    """The lines of a file, and of those that it refers to."""
    for line in file.read_text().splitlines() if file.exists() else []:
        if other := re.match(r"-r\s*(\S+)", line):
            yield from requirements(file.parent / other[1])
        else:
            yield line


def is_installed(package: str, at_least: str) -> bool:
    if package.startswith(FOR_STYLE):
        return True
    try:
        major = importlib.metadata.version(package).split(".")[0]
    except importlib.metadata.PackageNotFoundError:
        return False
    return not at_least or int(major) >= int(at_least)


def installed_torch() -> Path | None:
    try:
        torch = importlib.metadata.distribution("torch")
    except importlib.metadata.PackageNotFoundError:
        return None
    direct = json.loads(torch.read_text("direct_url.json") or "{}").get("url", "")
    return (
        Path(unquote(direct.removeprefix("file://")))
        if direct
        else Path(str(torch.locate_file(""))).resolve()
    )


def empty_submodules(checkout: Path) -> list[str]:
    command = ["git", "config", "-f", ".gitmodules", "--get-regexp", r"\.path$"]
    found = subprocess.run(command, cwd=checkout, capture_output=True, text=True).stdout
    paths = [line.split(maxsplit=1)[1] for line in found.splitlines()]
    return [p for p in paths if not ((checkout / p).is_dir() and any((checkout / p).iterdir()))]


# ---- How long --------------------------------------------------------------------------------------------


def probe(compiler: str) -> float | None:
    """The seconds that a small file takes here."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "probe.cpp")
        file.write_text(PROBE)
        start = time.monotonic()
        command = [*compiler.split(), "-c", str(file), "-o", f"{scratch}/probe.o"]
        if subprocess.run(command, capture_output=True).returncode:
            return None
        return round(time.monotonic() - start, 2)


def outlook(record: Record, environment: dict[str, str], minimal: bool) -> str:
    """What will be done, with a guess at how long it takes: a recorded run's time, scaled by that of a
    small file and the number of jobs. The guess is of a minimal build; a usual one has no record."""
    jobs = int(environment["MAX_JOBS"])
    compiler = environment.get("CXX") or "c++"
    tree = record.data["tree"]
    lines = [
        f"PyTorch {tree['release']} at {tree['commit'] or 'no commit'}, {jobs} jobs of {compiler}, "
        f"{'minimal' if minimal else 'with the features that it has by default'}."
    ]
    seconds = probe(compiler)
    record.data.setdefault("probe", {"seconds": seconds, "jobs": jobs})
    if seconds is None:
        raise Refusal(f"{compiler} compiles no small program")
    if not minimal:
        lines.append("How long: nobody has recorded it; expect hours, and see the progress below.")
    elif RECORDED.exists():
        lines.append(how_long(json.loads(RECORDED.read_text()), seconds, jobs))
    lines.append(
        f"Logs, and all that is found: {record.folder}. Interrupted, it goes on from there."
    )
    return "\n".join(lines)


def how_long(recorded: dict[str, Any], seconds: float, jobs: int) -> str:
    slower = seconds / recorded["probe"]["seconds"]
    share = recorded["probe"]["jobs"] / min(jobs, os.cpu_count() or 1)
    steps = [step for state in recorded["states"].values() for step in state.items()]
    builds = sum(found["seconds"] for name, found in steps if name == "build")
    others = sum(found["seconds"] for name, found in steps if name != "build")
    first = recorded["states"]["stock"]["build"]["seconds"]
    return (
        f"How long: about {first * slower * share / 60:.0f} minutes until the first build is there, and "
        f"{(builds * slower * share + others * slower) / 60:.0f} for everything."
    )
