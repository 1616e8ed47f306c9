"""Defects that are known and not mended: each with a reproduction, and the cells that it spoils.

test_defects.py expects every reproduction to fail, strictly: what mends a defect removes it here,
and its cells run again.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.func import vjp, vmap

import clampgrad
from matrix.forms import FORMS


@dataclass(frozen=True)
class Defect:
    name: str
    spoils: Callable  # cell -> bool
    reproduce: Callable  # raises while the defect is there


def equal(a, b):
    assert a == b, f"{a} instead of {b}"


def keeps_tensors(cell):
    keeping = ("saved tensors", "save_on_cpu", "checkpoint, not", "checkpoint, sel")
    return cell.context.startswith(keeping)


def bits_packed_before_written():
    x = torch.linspace(-2, 2, 1000).requires_grad_()
    y = x.clone()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        clampgrad.clamp_(y, -1, 1)
    y.sum().backward()
    equal(int((x.grad != (x.detach().abs() < 1)).sum()), 0)


def mixed_dtype():
    equal(
        clampgrad.clamp(
            torch.tensor([1, 2], dtype=torch.uint8), torch.tensor([-5, -5]), -1
        ).tolist(),
        [-1, -1],
    )


def strides_of_size_one():
    x = torch.randn(4, 1, 6).permute(2, 1, 0).requires_grad_()
    equal(clampgrad.clamp(x, 0, 1).stride(), (1, 6, 6))


def in_place_off_the_fast_path():
    x = torch.tensor([-1.0, 0.0, 1.0], requires_grad=True)
    y = x * 1
    clampgrad.clamp_min_(y, torch._neg_view(torch.zeros(3)), gradient="inclusive")
    y.sum().backward()
    equal(x.grad.tolist(), [0, 1, 1])


def off_the_fast_path(cell):
    args = [a for a in cell.args if hasattr(a, "layout")]
    return "dual" in cell.context or any(
        a.layout in ("neg", "conj") or len(a.shape) == 16 for a in args
    )


def odd_sizes(cell):
    args = [a for a in cell.args if hasattr(a, "layout")]
    return any(0 in a.shape or (1 in a.shape and a.layout != "plain") for a in args)


def sixteen_dimensions():
    x = torch.randn(*[2] * 16).transpose(0, 15).requires_grad_()
    torch.ops.clampgrad.clamp_mingrad(x, -0.5, 0.5).sum().backward()
    equal(int((x.grad != (x.detach().abs() < 0.5)).sum()), 0)


def level_of_vmap():
    def inside(x):
        twice = vjp(vmap(lambda x: torch.ops.clampgrad.clamp_max_mingrad_(x.clone(), 1)), x)
        return twice[1](torch.ones(2, 3))

    vmap(inside)(torch.randn(2, 2, 3))


DEFECTS = [
    Defect(
        "12.1 in place, the bits are packed before they are written",
        lambda cell: FORMS[cell.form].in_place and keeps_tensors(cell),
        bits_packed_before_written,
    ),
    Defect(
        "12.2 clamp_mingrad of 16 dimensions that are not contiguous",
        lambda cell: (
            cell.form.startswith("mingrad")
            and any(
                len(a.shape) == 16 and a.layout != "plain"
                for a in cell.args
                if hasattr(a, "layout")
            )
        ),
        sixteen_dimensions,
    ),
    Defect(
        "12.3 vmap rules take the highest level they find",
        lambda cell: cell.form == "mingrad in place" and cell.context.count("vmap") > 1,
        level_of_vmap,
    ),
    Defect(
        "12.4 mixed bounds of several dtypes",
        lambda cell: cell.mixed and len({getattr(a, "dtype", "float32") for a in cell.args}) > 1,
        mixed_dtype,
    ),
    Defect(
        "12.8 strides where a dimension has size 1 or 0",
        lambda cell: cell.context.startswith(("strides", "meta")) and odd_sizes(cell),
        strides_of_size_one,
    ),
    Defect(
        "12.11 in place with a Tensor bound, off the fast path",
        lambda cell: FORMS[cell.form].in_place and not cell.numbers and off_the_fast_path(cell),
        in_place_off_the_fast_path,
    ),
]


def spoilt(cell):
    """The name of the defect that this cell is known to show, or None."""
    return next((d.name for d in DEFECTS if d.spoils(cell)), None)
