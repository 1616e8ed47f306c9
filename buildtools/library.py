"""What the build calls its files.

In a folder of clampgrad/_lib there is libclampgrad, the operators without Python, and beside it a
module `_C` for each Python, which is small and links it:

    torch_2_13/libclampgrad.so.1.0
    torch_2_13/_C.cpython-311-x86_64-linux-gnu.so
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROJECT = (ROOT / "pyproject.toml").read_text()
VERSION = re.search(r'^version = "(.+)"', PROJECT, re.MULTILINE)[1]
# Those that wheels are for, as "3.12".
PYTHONS = re.findall(r'^  "Programming Language :: Python :: (3\.\d+)"', PROJECT, re.MULTILINE)
# Libraries of one minor version can stand for each other, as CMakeLists.txt says too. So they share
# this name, by which the loader knows a library that a process has already.
LIBRARY = f"libclampgrad.so.{'.'.join(VERSION.split('.')[:2])}"


def folder(torch: str, cuda: str | None) -> str:
    """Where the files for a torch are, under clampgrad/_lib: "torch_2_13", "torch_2_13_cu13"."""
    name = "torch_" + "_".join(torch.split(".")[:2])
    return f"{name}_cu{cuda.split('.')[0]}" if cuda else name


@dataclass(frozen=True)
class Python:
    """One that a module is built for. Only its headers are needed: those of torch
    are the same for every Python."""

    headers: Path  # the folder of Python.h
    module: str  # the file of its module


SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX"))  # ".cpython-311-x86_64-linux-gnu.so"


def this_python() -> Python:
    return Python(Path(sysconfig.get_path("include")), f"_C{SUFFIX}")


def python_of(name: str) -> Python:
    """Another one for the same platform: a folder of headers, or a Python that has them."""
    headers = Path(name)
    if not headers.is_dir():
        ask = "import sysconfig; print(sysconfig.get_path('include'))"
        try:
            asked = subprocess.run([name, "-c", ask], capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise SystemExit(f"clampgrad: {name} is no Python, and no folder: {error}") from error
        headers = Path(asked.stdout.strip())
    if not (headers / "patchlevel.h").is_file():
        raise SystemExit(f"clampgrad: {name} has no headers of Python (no {headers}/patchlevel.h)")
    text = (headers / "patchlevel.h").read_text()
    major, minor = (
        re.search(rf"define PY_{n}_VERSION\s+(\d+)", text)[1] for n in ("MAJOR", "MINOR")
    )
    suffix = re.sub(r"cpython-\w+", f"cpython-{major}{minor}", SUFFIX, count=1)
    return Python(headers, f"_C{suffix}")


def pythons_here() -> list[str]:
    """The headers of those of PYTHONS that are on PATH and have any."""
    headers = []
    for python in filter(None, (shutil.which(f"python{version}") for version in PYTHONS)):
        # It has none, or pyenv knows the name and has not chosen it.
        with suppress(SystemExit):
            headers.append(str(python_of(python).headers))
    return headers
