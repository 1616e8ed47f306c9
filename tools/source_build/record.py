"""What a run has done and found, on disk after every step."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import machine
from checkout import PACKAGE
from flags import MINIMAL
from series import ROOT, Refusal, Tree, named

SOURCES = (".py", ".h", ".cpp", ".cu", ".cuh", ".yaml", ".json", ".toml", ".txt")
# What decides what is asked of a build. The patches have digests of their own.
ASKING = (*(set(PACKAGE) - {"patches"}), "benchmarks", "test/oracle.py", "docs/verified.json")
BUILT = ("build", "build again", "copy")  # steps that do not depend on what is asked


def digest(series: str) -> str:
    """A hash of the patches of a series."""
    return hashlib.sha256(b"".join(p.read_bytes() for p in named(series).patches)).hexdigest()[:16]


def proofs() -> list[Path]:
    """All that may decide what is asked of a build, and how answers are judged."""
    asking = [ROOT / name for name in ASKING]
    files = [f for top in asking for f in (top.rglob("*") if top.is_dir() else [top])]
    return sorted(f for f in files if f.suffix in SOURCES)


def folder_of(tree: Tree) -> Path:
    """Where the record and the logs of a tree are; of nothing else than PyTorch's trees."""
    assert tree.release
    return tree.path / "build" / "clampgrad"


def of_the_proofs() -> str:
    digest = hashlib.sha256()
    for file in proofs():
        digest.update(f"{file.relative_to(ROOT)}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


class Record:
    """`data["states"]` holds for each state of the tree what its steps found, and their seconds. A step without
    seconds is not done; it has the files that are done."""

    def __init__(self, folder: Path, data: dict[str, Any], replaces: bool = False) -> None:
        self.folder, self.data, self.replaces = folder, data, replaces
        self.lock = threading.Lock()
        self.start = 0.0  # when the present step began
        self.at_work = False

    @classmethod
    def of(cls, tree: Tree, series: Sequence[str], flags: dict[str, str], quick: bool) -> Record:
        """Goes on with the record of an earlier run, if that had the same tree and the same flags.

        Otherwise the earlier record becomes record.old.json, once this run has done something. Of the record that
        goes on, what depends on patches or on the list of series is asked again where these changed.
        """
        folder = folder_of(tree)
        file = folder / "record.json"
        same = {
            "tree": {"release": tree.release, "commit": tree.commit},
            "flags": flags,
            "minimal": hashlib.sha256(MINIMAL.read_bytes()).hexdigest()[:16],
            "machine": {
                "processor": machine.processor(),
                "cores": machine.cores(),
                "python": sys.version.split()[0],
            },
            "environment": sys.prefix,
        }
        asked = {"series": list(series), "patches": {n: digest(n) for n in series}, "quick": quick}
        asked["proofs"] = of_the_proofs()
        data = same | asked | {"built": None, "torch": None, "states": {}}
        if not file.exists():
            return cls(folder, data)
        old = cls.read(file)
        if any(cls.compared(old.get(key)) != cls.compared(same[key]) for key in same):
            return cls(folder, data, replaces=True)
        states = old["states"]
        if old.get("proofs") != asked["proofs"]:
            for name, steps in states.items():
                states[name] = {step: steps[step] for step in BUILT if step in steps}
        changed = old["series"] != asked["series"]
        for name, patches in asked["patches"].items():
            if old["patches"].get(name, patches) != patches:
                changed = True
                states.pop(name, None)
                old["built"] = None  # perhaps with the patches as they were
        # The patches of series that are not asked now are kept too: a later run may ask them, changed.
        asked["patches"] = old["patches"] | asked["patches"]
        if changed:
            undone = states.pop("undone", {})  # its build stays; the rest is asked again
            states["undone"] = {step: undone[step] for step in BUILT if step in undone}
            states.get("stock", {}).pop("controls", None)
        if old["quick"] and not quick:
            for steps in states.values():
                steps.pop("gradients", None)
        return cls(folder, old | asked | {"quick": quick and old["quick"]})

    @staticmethod
    def compared(fact: Any) -> Any:
        """Without the number of cores: a process may have other ones tomorrow, and what was built is the same."""
        return {k: v for k, v in fact.items() if k != "cores"} if isinstance(fact, dict) else fact

    @staticmethod
    def read(file: Path) -> dict[str, Any]:
        try:
            old: dict[str, Any] = json.loads(file.read_text())
            steps = [step for state in old["states"].values() for step in state.values()]
            whole = all(isinstance(step, dict) for step in [*steps, old["patches"]])
            if whole and {"series", "quick", "built", "torch"} <= old.keys():
                return old
        except (ValueError, LookupError, AttributeError, TypeError):
            pass
        raise Refusal(f"{file} is torn, or of another version of this script: delete it")

    @property
    def states(self) -> dict[str, Any]:
        states: dict[str, Any] = self.data["states"]
        return states

    @property
    def asked(self) -> dict[str, Any]:
        """The states of this run, in their order; the record may have those of other series too."""
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
        """Does a step of a state, unless it is done."""
        if done := self.found(state, name):
            print(f"==> {state}: {name}: done before, in {done['seconds']} s", flush=True)
            return
        print(f"==> {state}: {name}", flush=True)
        attempts = self.begin(state, name)
        self.start = time.monotonic() - self.states.get(state, {}).get(name, {}).get("spent", 0)
        result = work()
        seconds = round(time.monotonic() - self.start, 1)
        self.states.setdefault(state, {})[name] = {"seconds": seconds, **result}
        if attempts > 1:  # the seconds may be of the last attempt alone
            self.states[state][name]["attempts"] = attempts
        self.set(end=now())

    def begin(self, state: str, name: str) -> int:
        """Writes to disk that a step begins, so that a process that dies in it leaves a trace."""
        if not self.at_work:
            self.at_work = True
            if "start" not in self.data:
                built = self.folder.parent / "CMakeCache.txt"
                self.set(**{"start": now(), "from nothing": not built.exists()})
            self.data["starts"] = self.data.get("starts", 0) + 1
        step = self.states.setdefault(state, {}).setdefault(name, {})
        step["attempts"] = step.get("attempts", 0) + 1
        self.save()
        attempts: int = step["attempts"]
        return attempts

    def part(self, state: str, step: str, file: str, work: Callable[[], Any]) -> Any:
        """Does one file of a step, unless it is done. Several threads may do files at the same time."""
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
