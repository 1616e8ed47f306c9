"""Finds the torch that a build is for, without importing it, and what else the build lacks."""

from __future__ import annotations

import itertools
import os
import shlex
import shutil
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path

RELEASES = Path(__file__).resolve().parent.parent.joinpath("torch_releases.txt").read_text().split()


def minor(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")[:2]))


OLDEST, NEWEST = minor(RELEASES[0]), minor(RELEASES[-1])
RANGE = " to ".join(f"{major}.{least}" for major, least in (OLDEST, NEWEST))


def torch_of_the_environment() -> str | None:
    """The release that the package will be installed beside. A build in
    isolation cannot import it."""
    paths = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    torch = next(iter(distributions(name="torch", path=paths)), None)
    return torch and torch.version


def torch_here() -> str | None:
    try:
        return version("torch")
    except PackageNotFoundError:
        return torch_of_the_environment()


def requirements() -> list[str]:
    """The requirements of a build in isolation: the torch that its library will meet. If the
    sources are not for that one, there will be no library, and torch is not needed."""
    torch = torch_of_the_environment()
    if torch is None:
        major, least = NEWEST
        return [f"torch>={RELEASES[0]},<{major}.{least + 1}", "ninja"]
    known = OLDEST <= minor(torch) <= NEWEST
    return ["torch=={}.{}.*".format(*minor(torch)), "ninja"] if known else []


def refuse_newer() -> None:
    """Ends the build if torch is newer than the sources. pip shows no
    messages of a build that succeeds."""
    torch = torch_here()
    if torch and minor(torch) > NEWEST:
        raise SystemExit(
            f"torch {torch} is newer than this clampgrad, which is compiled for {RANGE}: upgrade clampgrad, "
            "or set CLAMPGRAD_PORTABLE=1 for the implementation in plain PyTorch"
        )


def compiler() -> list[str]:
    """The command that compiles C++: a wrapper as ccache, if any, the compiler, and options."""
    return shlex.split(os.environ.get("CXX") or "c++")


def find_missing_requirement() -> str | None:
    """What is missing for a library, or None; torch is not imported for that."""
    if sys.platform == "win32":
        return "it was built on Windows, whose compiler has no vector extension"
    torch = torch_here()
    if torch is None:
        return "torch was not there when it was built"
    if not OLDEST <= minor(torch) <= NEWEST:
        return f"it was built beside torch {torch}, which its C++ is not for"
    # A wrapper, as ccache, is no compiler; the compiler is the last word before its options.
    names = list(itertools.takewhile(lambda word: not word.startswith("-"), compiler()))
    if not all(map(shutil.which, names)):
        return f"there was no C++ compiler when it was built (no {names[-1]} on PATH)"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "the headers of Python were not there when it was built"
    return None
