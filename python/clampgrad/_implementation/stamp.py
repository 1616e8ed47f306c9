"""What a compiled library was built from. It says so in a text, which is read before it is loaded:
loading registers operators, and they stay."""

import mmap

from clampgrad._implementation.build import SOURCES, VERSION

MARK = "clampgrad-stamp: "  # written by tools/stamp.py


def minor(release: str) -> str:
    """What binaries are compatible within: "2.13" of "2.13.0+cpu"."""
    return ".".join(release.split(".")[:2])


def expected(torch: str) -> str:
    """The stamp that a library for a minor release of torch, as "2.13", has to have."""
    return f"{MARK}version={VERSION} torch={torch} sources={SOURCES}"


def stamp_of(path: str) -> str:
    """The stamp of a library; empty if it has none."""
    with open(path, "rb") as file:
        try:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # an empty file
            return ""
        with content:
            start = content.find(MARK.encode())
            text = content[start : start + 200].partition(b"\0")[0] if start >= 0 else b""
            return text.decode(errors="replace")


def why_stale(path: str, torch: str) -> str | None:
    """Why the library is not one that this package was built with; None if it is."""
    found, here = stamp_of(path), expected(torch)
    if found == here:
        return None
    said = found.removeprefix(MARK) or "it does not say which"
    return f"it is of another build: {said}, and the package is {here.removeprefix(MARK)} ({path})"
