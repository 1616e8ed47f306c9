"""Defects that are known and not mended: each with a reproduction, and the cells that it spoils.

test_defects.py expects every reproduction to fail, strictly: what mends a defect removes it here,
and its cells run again.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.func import vjp, vmap


@dataclass(frozen=True)
class Defect:
    name: str
    spoils: Callable  # cell -> bool
    reproduce: Callable  # raises while the defect is there


def in_place_between_two_vmaps():
    def inside(x):
        clamped = vmap(lambda x: torch.ops.clampgrad.clamp_max_mingrad_(x.clone(), 1))
        return vjp(clamped, x)[1](torch.ones(2, 3))

    vmap(inside)(torch.randn(2, 2, 3))


DEFECTS = [
    Defect(
        "clamp_mingrad_ and its kind in a vmap of a vjp of a vmap: vmap refuses to write",
        lambda cell: cell.form == "mingrad in place" and cell.context.count("vmap") > 1,
        in_place_between_two_vmaps,
    ),
]


def spoilt(cell):
    """The name of the defect that this cell is known to show, or None."""
    return next((d.name for d in DEFECTS if d.spoils(cell)), None)
