"""The text in a compiled library, and in the module that links it, that says what they were built
from. It is read before they are loaded, because loading registers operators for good."""

import mmap
from pathlib import Path

from clampgrad._implementation.build import SOURCES, VERSION

MARK = "clampgrad-stamp: "  # written by buildtools/stamp.py


def minor(release: str) -> str:
    """Returns the minor release, within which binaries are compatible: "2.13" for "2.13.0+cpu"."""
    return ".".join(release.split(".")[:2])


def expected(torch: str) -> str:
    """Returns the stamp that a library for a minor release of torch ("2.13") must have."""
    return f"{MARK}version={VERSION} torch={torch} sources={SOURCES}"


def stamp_of(path: Path) -> str:
    """Returns the stamp of a file, or an empty text if it has none or is not whole."""
    with open(path, "rb") as file:
        try:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # an empty file
            return ""
        with content:
            if not is_whole(content):
                return ""
            start = content.find(MARK.encode())
            text = content[start : start + 200].partition(b"\0")[0] if start >= 0 else b""
            return text.decode(errors="replace")


def is_whole(content: mmap.mmap) -> bool:
    """Whether a file of ELF is as long as it says: loading one that an interrupted copy has cut off
    ends the process."""
    if content[:4] != b"\x7fELF":
        return True  # of another platform

    def number(start: int, size: int) -> int:
        return int.from_bytes(content[start : start + size], "little")

    # The table of sections, which is behind the code: where it is, and its rows.
    return len(content) >= number(40, 8) + number(58, 2) * number(60, 2) > 0


def why_stale(path: Path, torch: str) -> str | None:
    """Returns why the file does not belong to this build of the package, or None."""
    if not path.is_file():
        return f"a part of it is missing ({path})"
    stamp, expected_stamp = stamp_of(path), expected(torch)
    if stamp == expected_stamp:
        return None
    build = stamp.removeprefix(MARK) or "it does not say which"
    own_build = expected_stamp.removeprefix(MARK)
    return f"it is of another build: {build}, and the package is {own_build} ({path})"
