"""A state of the tree, built."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import progress
from flags import MINIMAL, flags, is_minimal
from processes import watched
from record import Record
from series import Refusal, Tree, files_added, named


def command() -> list[str]:
    """The command that builds a tree of any release. It fetches nothing: ready.py has seen that all is there."""
    how = "-m pip install -v --no-build-isolation --no-deps --use-pep517 -e ."
    return [sys.executable, *how.split()]


def stamp(tree: Tree, state: str) -> str:
    """The version of a build, of its own, so that nobody takes it for another; one of a fork keeps what it
    says after a +."""
    public, _, local = (tree.path / "version.txt").read_text().strip().partition("+")
    name = "stock" if state == "undone" else state.rpartition("/")[2]
    return f"{public.removesuffix('a0')}+{'.'.join(re.findall('[a-z0-9]+', f'{local} {name}'.lower()))}"


@dataclass
class Place:
    """The tree in one of its states."""

    tree: Tree
    record: Record
    environment: dict[str, str]
    state: str
    series: str | None  # that is in the tree in this state

    def step(self, name: str, work: Callable[[], dict[str, Any]]) -> None:
        if not self.record.found(self.state, name):
            self.arrive()
        self.record.step(self.state, name, work)

    def arrive(self) -> None:
        """Makes the tree what it is in this state, and builds it, if it is not that already."""
        applied = self.tree.applied()
        if applied != self.series:
            if applied:
                self.tree.put(applied, reverse=True)
            if self.series:
                self.tree.put(self.series)
        if self.record.data["built"] != [self.series]:
            self.record.set(built=None)
            # The first build of a state stays on record: another one compiles less.
            again = self.record.found(self.state, "build")
            name = "build again" if again else "build"
            self.record.states.get(self.state, {}).pop("build again", None)
            self.record.step(self.state, name, lambda: self.build(name))
            self.record.set(built=[self.series], torch=self.built())
        elif (found := self.imported()) != self.record.data["torch"]:
            raise Refusal(
                f"the torch that is imported changed after it was built here. It is {found}, and was "
                f"{self.record.data['torch']}. Delete {self.record.folder}, and the run begins anew"
            )

    def built(self) -> dict[str, Any]:
        """The torch that a build has just made."""
        found, version = self.imported(), stamp(self.tree, self.state)
        inside = Path(found["folders"][0]).resolve().is_relative_to(self.tree.path)
        if not (inside and found["version"] == version):
            raise Refusal(
                f"{found['version']} of {found['folders'][0]} is imported, and {version} was built in "
                f"{self.tree.path}"
            )
        return found

    def imported(self) -> dict[str, Any]:
        ask = [sys.executable, str(Path(__file__).with_name("answering.py"))]
        done = subprocess.run(ask, cwd=self.record.folder, capture_output=True, text=True)
        if done.returncode:
            raise Refusal(f"the torch that was built is not imported:\n{done.stderr.strip()}")
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    def build(self, name: str) -> dict[str, Any]:
        log = self.record.log(self.state, name.replace(" ", "-"))
        version = stamp(self.tree, self.state)
        versions = {"PYTORCH_BUILD_VERSION": version, "PYTORCH_BUILD_NUMBER": "1"}
        self.configure_anew_if_needed()
        environment = self.environment | versions
        see = progress.Progress().see
        code = watched(command(), log, see, cwd=self.tree.path, env=environment)
        lines = log.read_text(errors="replace").splitlines()
        if code:
            errors = [line for line in lines if "error:" in line.lower()] or lines[-20:]
            left = f" {self.series} is in the tree." if self.series else ""
            raise Refusal(
                "\n".join(["the build failed:", *errors[:20], f"The log is {log}.{left}"])
            )
        if is_minimal(self.environment) and not self.is_minimal():
            raise Refusal(
                f"CMake did not include {MINIMAL}: leave --minimal out. The log is {log}."
            )
        steps, compiled = progress.steps(lines)
        names = {"compiled": compiled} if len(compiled) < 50 else {}
        return {"steps": steps, "files": len(compiled)} | names

    def configure_anew_if_needed(self) -> None:
        """Makes CMake configure again if the flags or the list of files changed, which PyTorch's build would not notice."""
        wanted = flags(self.environment)
        before, now = self.record.data.get("configured"), [wanted, self.added_files()]
        if before != now:
            for name in ("CMakeCache.txt", "build.ninja"):
                (self.tree.path / "build" / name).unlink(missing_ok=True)
            self.record.set(configured=now)

    def is_minimal(self) -> bool:
        """Whether CMake kept the variable that minimal.cmake sets."""
        build = self.tree.path / "build"
        caches = [*build.glob("CMakeCache.txt"), *build.glob("*/CMakeCache.txt")]
        return any("\nCLAMPGRAD_MINIMAL:" in cache.read_text() for cache in caches)

    def added_files(self) -> list[str]:
        patches = named(self.series).patches if self.series else []
        return sorted({name for patch in patches for name in files_added(patch)})
