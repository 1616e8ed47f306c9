"""The time of the gradients in each state: processes in turn, each on a copy of its state's torch."""

from __future__ import annotations

import filecmp
import os
import shutil
import site
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from building import Place, stamp
from proofs import child

# What a program that uses torch does not need.
LEFT_OUT = ("csrc", "include", "share", "test", "__pycache__", "*.a", "*.pyi")


def folder(place: Place, state: str) -> Path:
    return place.record.folder / "copies" / state


def keep(place: Place) -> None:
    """Copies the torch that was built, its libraries and its Python. Files that are the same as on stock are linked."""
    copy, stock = folder(place, place.state) / "torch", folder(place, "stock") / "torch"

    def once(source: str, target: str) -> None:
        twin = stock / Path(target).relative_to(copy)
        Path(target).unlink(missing_ok=True)  # left by another part
        if twin.exists() and filecmp.cmp(source, twin, shallow=False):
            os.link(twin, target)
        else:
            shutil.copy(source, target)

    def ask() -> dict[str, Any]:
        shutil.rmtree(copy, ignore_errors=True)
        left_out = shutil.ignore_patterns(*LEFT_OUT)
        for part in place.record.data["torch"]["folders"]:
            shutil.copytree(part, copy, ignore=left_out, copy_function=once, dirs_exist_ok=True)
        return {}

    if not (copy.is_dir() or place.record.found("undone", "times")):  # somebody deleted it
        place.record.states.get(place.state, {}).pop("copy", None)
    place.step("copy", ask)


def times(place: Place, states: Sequence[str], rounds: int) -> None:
    def ask() -> dict[str, Any]:
        found: dict[str, list[dict[str, float]]] = {state: [] for state in states}
        for i in range(rounds):
            print(f"    round {i + 1} of {rounds}", flush=True)
            for state in states:
                copy = str(folder(place, state))
                # torchgen, which torch imports, lies beside it in the tree.
                path = os.pathsep.join([copy, *site.getsitepackages(), str(place.tree.path)])
                # Without -S, what pip wrote for an editable install comes before any path.
                torch = {"version": stamp(place.tree, state)}
                program = ("times", "-S times.py", copy)
                found[state].append(child(place, *program, torch=torch, PYTHONPATH=path))
        return {"microseconds": found}

    place.step("times", ask)
