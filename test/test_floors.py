"""The floors of csrc/: a folder includes itself and what is below it, never what is above."""

import re
from pathlib import Path

import pytest

CSRC = Path(__file__).resolve().parent.parent / "csrc"
# From the ground up; folders of one floor do not include each other.
FLOORS = [
    ["base"],
    ["kernels"],
    ["autograd"],
    ["ops"],
    ["clampgrad", "functorch", "pin"],
    ["python"],
]
FLOOR = {folder: floor for floor, folders in enumerate(FLOORS) for folder in folders}
PUBLIC = "clampgrad/gradient.h"  # a list of names, for programs too: below everything


def includes(path):
    """The folder of every header of csrc/ that a file includes."""
    for header in re.findall(r'#include ["<]([\w/.]+)[">]', path.read_text()):
        if (CSRC / header).exists() and header != PUBLIC:
            yield header, header.split("/")[0]


def above(path, folder):
    own = path.relative_to(CSRC).parts[0]
    return folder != own and FLOOR[folder] >= FLOOR[own]


SOURCES = [
    p
    for p in sorted(CSRC.rglob("*"))
    if p.suffix in (".h", ".cpp", ".cu", ".cuh") and p.relative_to(CSRC).parts[0] != "compat"
]


@pytest.mark.parametrize("folder", FLOOR)
def test_includes_go_down(folder):
    sources = [p for p in SOURCES if p.is_relative_to(CSRC / folder)]
    assert sources
    assert not [(str(p), h) for p in sources for h, to in includes(p) if above(p, to)]


def test_every_folder_has_a_floor():
    assert {p.relative_to(CSRC).parts[0] for p in SOURCES} == FLOOR.keys()


def test_the_floors_are_told_apart():
    """What is forbidden: kernels may not include autograd, nor autograd ops."""
    assert above(CSRC / "kernels/fused.cpp", "autograd") and above(CSRC / "autograd/a.cpp", "ops")
    assert not above(CSRC / "ops/clamp.cpp", "kernels")
    assert any(to == "base" for _, to in includes(CSRC / "kernels/call.h"))
