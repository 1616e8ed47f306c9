"""A copy of the tree that is compiled in a minute, for tools that change the code and then run the
tests. `python -m testing.quick_build` makes one in build/quick.

It has one instruction set and no optimisation, because the rules are the same in all.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOT_COPIED = "docs/img"


def copy_to(tree: Path) -> None:
    """Copies the files that git tracks, as they are now. What was generated there stays."""
    for old in tree.iterdir() if tree.exists() else ():
        if old.is_dir() and old.name != "build":
            shutil.rmtree(old)
    files = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0")
    for file in filter(None, files):
        if not file.startswith(NOT_COPIED) and (ROOT / file).exists():
            to = tree / file
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, to)


def replace(file: Path, old: str, new: str) -> None:
    """The file keeps its time, so that it is compiled again only if the original has changed."""
    time = file.stat().st_mtime_ns
    file.write_text(file.read_text().replace(old, new))
    os.utime(file, ns=(time, time))


def build_quickly(tree: Path, library: Path, **environment: str) -> None:
    """Builds the package of the copy in `library`."""
    every = "#if defined(__x86_64__)"
    files = [p for p in (tree / "csrc/kernels").rglob("*.[ch]*") if every in p.read_text()]
    assert files
    for file in files:
        replace(file, every, "#if 0")
    for level in ('"-O2"', '"-O3"'):
        replace(tree / "setup.py", level, '"-O0"')
    command = [sys.executable, "setup.py", "build", "--build-base", str(tree.parent / "base")]
    subprocess.check_call(
        [*command, "--build-lib", str(library)],
        cwd=tree,
        env=os.environ | {"CLAMPGRAD_CUDA": "0"} | environment,
    )


if __name__ == "__main__":
    FOLDER = ROOT / "build/quick"
    copy_to(FOLDER / "tree")
    build_quickly(FOLDER / "tree", FOLDER / "lib")
