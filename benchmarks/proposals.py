"""The two libraries that a proposal is measured with: the operators of stock and those of the proposal,
compiled as `verify` compiles them. Each is loaded in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

SIDES = ("stock", "proposal")


def libraries(name: str, directory: Path) -> dict[str, Path]:
    from clampgrad.patches.series import named
    from clampgrad.patches.verify.compile import compiled
    from clampgrad.patches.verify.generate import affected, generated
    from clampgrad.patches.verify.native import Added, added
    from clampgrad.patches.verify.text import patched

    release = torch.__version__.split("+")[0]
    folders = [directory / side for side in SIDES]
    texts = [patched(f, p, release, None) for f, p in zip(folders, ([], named(name).patches))]
    codes = [generated(folder, text) for folder, text in zip(folders, texts)]
    names = affected(*codes)
    new = [Added(), added(folders[1], *texts)]
    return {s: compiled(*of_side, names, n) for s, *of_side, n in zip(SIDES, codes, folders, new)}


def rounds(name: str, script: str, count: int) -> dict[str, list]:
    """What `script --library LIBRARY` prints, as JSON, for both sides in turn, `count` times."""
    with tempfile.TemporaryDirectory() as scratch:
        print(f"compiling stock and {name}", file=sys.stderr)
        built = libraries(name, Path(scratch))
        found: dict[str, list] = {side: [] for side in SIDES}
        for i in range(count):
            print(f"round {i + 1} of {count}", file=sys.stderr)
            for side in SIDES:
                command = [sys.executable, script, "--library", str(built[side])]
                found[side].append(json.loads(subprocess.check_output(command)))
    return found
