"""The text in a compiled library, and in the module that links it, that says what they were built
from. It is read before they are loaded, because loading registers operators for good."""

import mmap
from pathlib import Path

from clampgrad._implementation.build import SOURCES, VERSION

MARK = "clampgrad-stamp: "  # written by buildtools/stamp.py


def minor(release: str) -> str:
    """The minor release, within which binaries are compatible: "2.13" for "2.13.0+cpu"."""
    return ".".join(release.split(".")[:2])


def expected(torch: str) -> str:
    """The stamp that a library for a minor release of torch ("2.13") must have."""
    return f"{MARK}version={VERSION} torch={torch} sources={SOURCES}"


def stamp_of(path: Path) -> str:
    """The stamp of a file, or an empty text."""
    with open(path, "rb") as file:
        try:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # an empty file
            return ""
        with content:
            start = content.find(MARK.encode())
            text = content[start : start + 200].partition(b"\0")[0] if start >= 0 else b""
            return text.decode(errors="replace")


def why_stale(path: Path, torch: str) -> str | None:
    """Why the file does not belong to this build of the package, or None."""
    if not path.is_file():
        return f"a part of it is missing ({path})"
    found, here = stamp_of(path), expected(torch)
    if found == here:
        return None
    said = found.removeprefix(MARK) or "it does not say which"
    return f"it is of another build: {said}, and the package is {here.removeprefix(MARK)} ({path})"
