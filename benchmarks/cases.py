"""The cases that are timed, as data: groups of functions of tensors, which are all differentiated.

The first function of a group is ours; the others are its rivals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

import clampgrad

torch._dynamo.config.recompile_limit = 64  # dtypes and sizes are many here

LO, HI = 0.0, 6.0


class ClampWithGrad(torch.autograd.Function):
    """The usual version in Python: the gradient passes where it moves the input back."""

    @staticmethod
    def forward(ctx, x, lo, hi):
        ctx.bounds = lo, hi
        ctx.save_for_backward(x)
        return x.clamp(lo, hi)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (g * (x - x.clamp(*ctx.bounds)) >= 0), None, None


def clamp_with(gradient):
    return lambda x: clampgrad.clamp(x, LO, HI, gradient=gradient)


def straight_through(x):
    return x + (x.clamp(LO, HI) - x).detach()


def compiled(function):
    """Compiled at the first call, for one size and then for any, as torch does unless told."""
    return torch.compile(function, fullgraph=True)


@dataclass(frozen=True)
class Group:
    name: str
    arity: int
    functions: dict[str, Callable]
    not_timed: tuple[str, ...] = ()  # only what is saved for backward is asked of these
    sizes: tuple[int, ...] = (1, 2**12, 2**16, 2**17, 2**20, 2**22, 2**24)

    @property
    def timed(self) -> dict[str, Callable]:
        return {name: f for name, f in self.functions.items() if name not in self.not_timed}


GROUPS = (
    Group(
        "clamp",
        1,
        {
            # Bounds need a closure; what takes none has one too, so that all are called alike.
            "clampgrad.clamp": lambda x: clampgrad.clamp(x, LO, HI),
            "torch.neg": lambda x: torch.neg(x),
            "torch.clamp": lambda x: torch.clamp(x, LO, HI),
            "F.hardtanh": lambda x: F.hardtanh(x, LO, HI),
            "F.relu6": lambda x: F.relu6(x),
            "F.relu": lambda x: F.relu(x),
            "x + (clamp(x) - x).detach()": straight_through,
            "ClampWithGrad in Python": lambda x: ClampWithGrad.apply(x, LO, HI),
            "half": clamp_with("half"),
            "with_grad": clamp_with("with_grad"),
            "restoring": clamp_with("restoring"),
            "straight_through": clamp_with("straight_through"),
        },
        not_timed=("half", "restoring", "straight_through", "F.relu6"),
    ),
    Group(
        "maximum",
        2,
        {
            "clampgrad.maximum": clampgrad.maximum,
            "torch.sub": torch.sub,
            # It saves nothing either, but writes a gradient for each argument, as maximum must.
            "torch.lerp": lambda x, y: torch.lerp(x, y, 0.5),
            "torch.maximum": torch.maximum,
        },
    ),
    Group(
        "clamp(x, lo, hi)",
        3,
        {
            "clampgrad.clamp": clampgrad.clamp,
            "torch.clamp": torch.clamp,
        },
    ),
    Group(
        "compiled clamp",
        1,
        {
            "clampgrad.clamp": compiled(lambda x: clampgrad.clamp(x, LO, HI)),
            "torch.clamp": compiled(lambda x: torch.clamp(x, LO, HI)),
        },
    ),
)

# The cases that programs call: timed with malloc's own settings too.
USED = ("clamp", "maximum", "clamp(x, lo, hi)")

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def inputs(group: Group, n: int, dtype: torch.dtype, device: str = "cpu") -> list[torch.Tensor]:
    """Normal, and scaled so that all three sides of the bounds are met often."""
    seeded = {"generator": torch.Generator(device).manual_seed(0), "device": device}
    tensors = [4 * torch.randn(n, **seeded) for _ in range(group.arity)]
    if group.arity == 3:  # x, lo, hi
        tensors[1:] = [tensors[1].abs().neg(), tensors[2].abs()]
    return [t.to(dtype).requires_grad_() for t in tensors]
