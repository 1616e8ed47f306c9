"""Defects that are known and not mended: each with a reproduction, and the cells that it spoils.

test_defects.py expects every reproduction to fail, strictly: what mends a defect removes it here,
and its cells run again.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Defect:
    name: str
    spoils: Callable  # cell -> bool
    reproduce: Callable  # raises while the defect is there


DEFECTS: list[Defect] = []


def spoilt(cell):
    """The name of the defect that this cell is known to show, or None."""
    return next((d.name for d in DEFECTS if d.spoils(cell)), None)
