"""What a run has done and found, on disk after every step."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from series import Tree


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(": ", 1)[1] for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


class Record:
    """`data["states"]` holds for each state of the tree what its steps found, and their seconds."""

    def __init__(self, folder: Path, data: dict[str, Any], replaces: bool = False) -> None:
        self.folder, self.data, self.replaces = folder, data, replaces

    @classmethod
    def of(cls, tree: Tree, flags: dict[str, str]) -> Record:
        """The record of an earlier run of the same tree with the same flags goes on.

        That of another is set aside as record.old.json, once this run has done something. Which series is in
        the tree is known from it all the same.
        """
        folder = tree.path / "build" / "clampgrad"
        file = folder / "record.json"
        tree_facts = {"release": tree.release, "commit": tree.commit}
        machine = {
            "processor": processor(),
            "cores": os.cpu_count(),
            "python": sys.version.split()[0],
        }
        data = {
            "tree": tree_facts,
            "flags": flags,
            "machine": machine,
            "applied": None,
            "built": None,
        }
        if file.exists():
            old = json.loads(file.read_text())
            if all(old[key] == data[key] for key in ("tree", "flags", "machine")):
                return cls(folder, old)
            data["applied"] = old["applied"]
        return cls(folder, data | {"states": {}}, replaces=file.exists())

    @property
    def states(self) -> dict[str, Any]:
        states: dict[str, Any] = self.data["states"]
        return states

    @property
    def has_begun(self) -> bool:
        return bool(self.states)

    def save(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.replaces:
            (self.folder / "record.json").replace(self.folder / "record.old.json")
            self.replaces = False
        new = self.folder / "record.new.json"
        new.write_text(json.dumps(self.data, indent=1, sort_keys=True) + "\n")
        new.replace(self.folder / "record.json")

    def set(self, **facts: Any) -> None:
        self.data |= facts
        self.save()

    def found(self, state: str, step: str) -> Any:
        return self.states.get(state, {}).get(step)

    def step(self, state: str, name: str, work: Callable[[], dict[str, Any]]) -> None:
        """A step of a state, unless it is done."""
        if done := self.found(state, name):
            print(f"==> {state}: {name}: done before, in {done['seconds']} s", flush=True)
            return
        print(f"==> {state}: {name}", flush=True)
        start = time.monotonic()
        result = work()
        seconds = round(time.monotonic() - start, 1)
        self.states.setdefault(state, {})[name] = {"seconds": seconds, **result}
        self.save()

    def log(self, state: str, step: str) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / f"{state.replace('/', '-')}.{step}.log"
