"""What a run has done and found, on disk after every step."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from series import ROOT, Tree, named

PROOFS = ("tools/source_build", "tools/verify", "python/clampgrad", "csrc")
SOURCES = (".py", ".h", ".cpp", ".cu", ".cuh", ".yaml")
BUILT = ("build", "copy")  # steps that do not depend on them


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(": ", 1)[1] for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def digest(series: str) -> str:
    """Of the text of its patches."""
    return hashlib.sha256(b"".join(p.read_bytes() for p in named(series).patches)).hexdigest()[:16]


def of_the_proofs() -> str:
    """A digest of all that decides what is asked of a build, and how answers are judged."""
    files = [ROOT / "conventions.yaml", ROOT / "test" / "oracle.py"]
    files += [f for top in PROOFS for f in sorted((ROOT / top).rglob("*")) if f.suffix in SOURCES]
    return hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()[:16]


class Record:
    """`data["states"]` holds for each state of the tree what its steps found, and their seconds. One without
    seconds is not done, and has the parts that are."""

    def __init__(self, folder: Path, data: dict[str, Any], replaces: bool = False) -> None:
        self.folder, self.data, self.replaces = folder, data, replaces
        self.lock = threading.Lock()
        self.start = 0.0  # of the step at work

    @classmethod
    def of(cls, tree: Tree, series: Sequence[str], flags: dict[str, str], quick: bool) -> Record:
        """The record of an earlier run of the same tree with the same flags goes on.

        That of another is set aside as record.old.json, once this run has done something. Of the same, what is
        of other patches or of another list of series is asked again.
        """
        folder = tree.path / "build" / "clampgrad"
        file = folder / "record.json"
        same = {
            "tree": {"release": tree.release, "commit": tree.commit},
            "flags": flags,
            "machine": {
                "processor": processor(),
                "cores": os.cpu_count(),
                "python": sys.version.split()[0],
            },
            "environment": sys.prefix,
        }
        asked = {"series": list(series), "patches": {n: digest(n) for n in series}, "quick": quick}
        asked["proofs"] = of_the_proofs()
        data = same | asked | {"built": None, "torch": None, "states": {}}
        if not file.exists():
            return cls(folder, data)
        old = json.loads(file.read_text())
        if any(old.get(key) != value for key, value in same.items()):
            return cls(folder, data, replaces=True)
        states = old["states"]
        if old.get("proofs") != asked["proofs"]:
            for name, steps in states.items():
                states[name] = {step: steps[step] for step in BUILT if step in steps}
        for name, patches in asked["patches"].items():
            if old["patches"].get(name, patches) != patches:
                states.pop(name, None)
                old["built"] = None  # of the patches as they were, perhaps
        if old["series"] != asked["series"] or old["patches"] != asked["patches"]:
            undone = states.pop("undone", {})  # built as it is, and perhaps after others
            states["undone"] = {step: undone[step] for step in ("build",) if step in undone}
            states.get("stock", {}).pop("controls", None)
        if old["quick"] and not quick:
            for steps in states.values():
                steps.pop("gradients", None)
        return cls(folder, old | asked | {"quick": quick and old["quick"]})

    @property
    def states(self) -> dict[str, Any]:
        states: dict[str, Any] = self.data["states"]
        return states

    @property
    def asked(self) -> dict[str, Any]:
        """Those of this run, in their order; an earlier one may have had other series."""
        return {s: self.states[s] for s in ("stock", *self.data["series"], "undone")}

    @property
    def has_begun(self) -> bool:
        return bool(self.states)

    def save(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.replaces:
            (self.folder / "record.json").replace(self.folder / "record.old.json")
            self.replaces = False
        new = self.folder / "record.new.json"
        new.write_text(json.dumps(self.data, indent=1) + "\n")
        new.replace(self.folder / "record.json")

    def set(self, **facts: Any) -> None:
        self.data |= facts
        self.save()

    def found(self, state: str, step: str) -> Any:
        """What a step found, if it is done."""
        found = self.states.get(state, {}).get(step, {})
        return found if "seconds" in found else None

    def step(self, state: str, name: str, work: Callable[[], dict[str, Any]]) -> None:
        """A step of a state, unless it is done."""
        if done := self.found(state, name):
            print(f"==> {state}: {name}: done before, in {done['seconds']} s", flush=True)
            return
        print(f"==> {state}: {name}", flush=True)
        self.start = time.monotonic() - self.states.get(state, {}).get(name, {}).get("spent", 0)
        result = work()
        seconds = round(time.monotonic() - self.start, 1)
        self.states.setdefault(state, {})[name] = {"seconds": seconds, **result}
        self.save()

    def part(self, state: str, step: str, file: str, work: Callable[[], Any]) -> Any:
        """A file of a step, unless it is done; files may be at work at the same time."""
        with self.lock:
            files = self.states.setdefault(state, {}).setdefault(step, {}).setdefault("files", {})
        if file not in files:
            found = work()
            with self.lock:
                files[file] = found
                self.states[state][step]["spent"] = round(time.monotonic() - self.start, 1)
                self.save()
        return files[file]

    def log(self, state: str, step: str) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / f"{state.replace('/', '-')}.{step}.log"
