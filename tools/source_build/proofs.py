"""What is asked of every state of the tree, once it is built: its gradients, and our package on it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import answering
import processes
from building import Place
from checkout import PACKAGE, ROOT
from series import Refusal

HERE = Path(__file__).parent
# Variables that change what is asked: how upstream's runner reports and which of its tests it takes, what is
# compiled, which gradients are pinned, and how Python finds and runs our own files.
NOT_PASSED_ON = ("CI", "CLAMPGRAD_GRADIENT", "PYTHONOPTIMIZE", "PYTHONSAFEPATH")
NOR_THOSE_OF = ("PYTORCH_JIT", "PYTORCH_TEST", "TORCHDYNAMO", "TORCHINDUCTOR", "TORCH_COMPILE")


def child(
    place: Place,
    name: str,
    script: str,
    *arguments: str,
    torch: dict[str, Any] | None = None,
    **more: str,
) -> dict[str, Any]:
    """Runs a program of this folder on the torch that was built; the JSON that it leaves behind."""
    log = place.record.log(place.state, name)
    torch = torch or place.record.data["torch"]
    out = log.with_suffix(".json")
    out.unlink(missing_ok=True)
    own = {
        name: value
        for name, value in os.environ.items()
        if name not in NOT_PASSED_ON and not name.startswith(NOR_THOSE_OF)
    }
    with tempfile.TemporaryDirectory() as cache:
        # Compiled code of another state would have the gradients of that.
        mine = {"TORCHINDUCTOR_CACHE_DIR": cache, answering.BUILT: json.dumps(torch)}
        environment = own | mine | more
        *flags, file = script.split()
        command = [sys.executable, *flags, str(HERE / file), str(out), *arguments]
        code = processes.run(command, log, env=environment, cwd=place.record.folder)
    if code or not out.exists():
        last = log.read_text(errors="replace").splitlines()[-5:]
        raise Refusal("\n".join([f"{script} ended with {code}:", *last, f"The log is {log}."]))
    result: dict[str, Any] = json.loads(out.read_text())
    return result


def gradients(place: Place) -> None:
    """The table of conventions, and what only a build can show."""

    def ask() -> dict[str, Any]:
        child(place, "gradients", "gradients.py", *["--quick"] * place.record.data["quick"])
        return {}

    place.step("gradients", ask)


def judge_gradients(last: Place) -> None:
    """Holds the gradients of every state to those of stock and to the claim of its series. This is done again
    in every run: it takes a second, and the gradients are kept."""
    kept = {s: last.record.log(s, "gradients").with_suffix(".json") for s in last.record.asked}
    for state, own in kept.items():
        series = "" if state in ("stock", "undone") else state
        files = (str(own), str(kept["stock"]))
        found = child(last, "judged", "judged.py", *files, series, last.tree.release)
        last.record.states[state]["gradients"] |= found
    last.record.save()


def package(place: Place) -> None:
    """clampgrad installed beside this torch: compiled where it is for the release, portable otherwise."""

    def ask() -> dict[str, Any]:
        folder = place.record.folder / "package"
        # An earlier run left it, for another torch.
        if place.state == "stock" or not folder.exists():
            new = folder.with_name("package.new")  # or an interrupted one would pass for whole
            for old in (folder, new):
                shutil.rmtree(old, ignore_errors=True)
            install(place, new)
            new.rename(folder)
        return child(place, "package", "package.py", PYTHONPATH=str(folder))

    place.step("package", ask)


def install(place: Place, folder: Path) -> None:
    minor = tuple(map(int, place.tree.release.split(".")[:2]))
    portable = {"CLAMPGRAD_PORTABLE": "1"} if minor < (2, 11) else {}
    # From a copy, because setuptools leaves files beside the sources.
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch, "source")
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "_lib")
        for name in PACKAGE:
            part = ROOT / name
            copy = partial(shutil.copytree, ignore=ignored) if part.is_dir() else shutil.copy
            source.mkdir(exist_ok=True)
            copy(part, source / name)
        command = "-m pip install -q --no-build-isolation --no-deps --target"
        done = subprocess.run(
            [sys.executable, *command.split(), str(folder), str(source)],
            env=os.environ | portable | {"MAX_JOBS": place.environment["MAX_JOBS"]},
            capture_output=True,
            text=True,
        )
    if done.returncode:
        raise Refusal(
            "clampgrad does not install beside this torch (CLAMPGRAD_PORTABLE=1 leaves its compiled part out):"
            f"\n{done.stderr[-2000:]}"
        )
