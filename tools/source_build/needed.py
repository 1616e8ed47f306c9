"""The packages that PyTorch is built and tested with, and our package beside it."""

from __future__ import annotations

import importlib.metadata
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

# What upstream's tests import and requirements.txt may not name, and what our package is built with.
FOR_TESTS = ("expecttest", "hypothesis", "setuptools>=77")
PROGRAMS = ("cmake", "ninja")  # conda and Debian install them without what pip knows of a package
FOR_STYLE = ("lintrunner", "types-")  # in requirements.txt, and neither built nor tested with


def missing(checkout: Path) -> str:
    """The packages that are not installed, and the command that installs them; or nothing."""
    # Versions are left to pip, and so is what depends on the platform or on Python.
    lines = [line for line in requirements(checkout / "requirements.txt") if ";" not in line]
    listed = [found[0] for line in lines if (found := re.match(r"[A-Za-z0-9][\w.-]*", line))]
    wanted = dict.fromkeys([*listed, *FOR_TESTS])
    names = [w for w in wanted if not is_installed(*w.partition(">=")[::2])]
    command = f"pip install -r {checkout}/requirements.txt {shlex.join(FOR_TESTS)}"
    return f"not installed: {', '.join(names)}. {command}" if names else ""


def requirements(file: Path) -> Iterator[str]:
    """The lines of a file, and of those that it refers to."""
    for line in file.read_text().splitlines() if file.exists() else []:
        if other := re.match(r"-r\s*(\S+)", line):
            yield from requirements(file.parent / other[1])
        else:
            yield line


def is_installed(package: str, at_least: str) -> bool:
    if package.startswith(FOR_STYLE) or (package in PROGRAMS and shutil.which(package)):
        return True
    try:
        major = importlib.metadata.version(package).split(".")[0]
    except importlib.metadata.PackageNotFoundError:
        return False
    return not at_least or int(major) >= int(at_least)
