"""What must be there before anything is begun."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import needed
from flags import OF_MINIMAL, OFF, is_minimal, nvcc
from series import Refusal, Tree
from upstream import TESTS


def check(tree: Tree, series: list[str], environment: dict[str, str], begun: bool) -> None:
    """Refuses with all that is in the way at once."""
    problems = list(in_the_way(tree, environment, begun))
    if problems:
        raise Refusal("\n".join(["this is in the way:", *(f"- {p}" for p in problems)]))
    if not tree.applied():
        for name in series:
            tree.would_take(name)


def in_the_way(tree: Tree, environment: dict[str, str], begun: bool) -> Iterator[str]:
    if any(map(str.isspace, str(tree.path))):
        yield f"a space in {tree.path}, at which parts of PyTorch's build split it: move the checkout"
    if missing := needed.missing(tree.path):
        yield missing
    if not re.fullmatch(r"[1-9]\d*", environment["MAX_JOBS"]):
        yield f"MAX_JOBS={environment['MAX_JOBS']} is no number"
    if gone := [name for name in TESTS if not (tree.path / "test" / name).is_file()]:
        yield f"not in {tree.path}/test: {', '.join(gone)}"
    changed = tree.changed()
    modules = [name for name in changed if (tree.path / name).is_dir()]
    if files := [name for name in changed if name not in modules]:
        yield f"changes to commit or stash first: {', '.join(files)}"
    if not begun and (series := tree.applied()):
        yield (
            f"{series} is in the tree, which is to be built without it first: undo it "
            f"(git checkout . in {tree.path}, unless it was committed)"
        )
    if not importlib.util.find_spec("pip"):
        yield "no pip in this environment: python -m ensurepip"
    if not shutil.which("ninja"):
        yield "no ninja on PATH: pip install ninja"
    if (version := cmake()) < (wanted := (3, 24) if is_minimal(environment) else (1, 0)):
        there = f"CMake {'.'.join(map(str, version))}" if any(version) else "no cmake"
        yield f"{there} on PATH, and {'.'.join(map(str, wanted))} is needed: pip install -U cmake"
    for name, own in OF_MINIMAL.items() if is_minimal(environment) else ():
        if os.environ.get(name, own) != own:
            yield f"{name} is set, which --minimal needs for its own file: unset it"
    compiler = (environment.get("CXX") or "c++").split()[0]
    if not shutil.which(compiler):
        yield f"no {compiler} on PATH: install a C++ compiler (Debian, Ubuntu: apt install g++ or clang)"
    if (environment.get("USE_CUDA") or "0").upper() not in OFF and not nvcc(environment):
        yield "USE_CUDA is set, and there is no nvcc: set CUDA_HOME, or the build leaves CUDA out"
    for what, names in (("without files", empty_submodules(tree.path)), ("that differ", modules)):
        if names:
            yield (
                f"submodules {what}: {', '.join(names)}. In {tree.path}: "
                "git submodule sync && git submodule update --init --recursive; "
                "what was changed inside of one, commit or stash there"
            )
    if not begun:
        free = shutil.disk_usage(tree.path).free >> 30
        if free < (size := gigabytes(environment)):
            yield f"{free} GiB of disk are free under {tree.path}; a build may take {size}"
        if (other := installed_torch()) and not other.is_relative_to(tree.path):
            yield f"this environment has a torch, in {other}: build in an environment of its own"


def gigabytes(environment: dict[str, str]) -> int:
    """The disk that objects, libraries and the copies of them take: guesses, on the safe side."""
    if nvcc(environment):
        return 40
    return 6 if is_minimal(environment) else 12


def cmake() -> tuple[int, ...]:
    """The version of the one on PATH; 0.0 if there is none."""
    command = shutil.which("cmake")
    said = subprocess.check_output([command, "--version"], text=True) if command else ""
    found = re.search(r"version (\d+)\.(\d+)", said)
    return tuple(map(int, found.groups())) if found else (0, 0)


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
