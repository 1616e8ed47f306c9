"""clamp and its relatives, with the gradient as a keyword.

Every function here has the forward of the function of the same name in torch: the same values,
dtypes, strides and errors. What differs is the gradient, which `gradient` names:

===================  ==========================================================================
min_norm (default)   0 at a bound: the least-norm subgradient, as F.relu6 and F.hardtanh have it
inclusive            1 at a bound: torch.clamp up to PyTorch 2.13
joint                torch.clamp from PyTorch 2.14 on
half                 1/2 at a bound: jax.numpy.clip
with_grad            outside the bounds, lets through what moves the input back
restoring            outside the bounds, +1 or -1: back, whatever the loss says
straight_through     1 everywhere
===================  ==========================================================================

The last three are no derivatives of the forward; they are for optimisation. Their direction "back"
is that of gradient descent; `maximize=True` is for ascent, and only for `with_grad` and `restoring`.

Errors, besides torch's own: ValueError for an unknown `gradient`, or for `maximize` where it means
nothing; NotImplementedError for a bound that is a Tensor, and for forward-mode differentiation of
`with_grad` and `restoring`, which are no linear functions of the incoming gradient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Union

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling

from clampgrad import _C

if TYPE_CHECKING:
    from typing import TypeAlias

Number: TypeAlias = Union[int, float]
Gradient: TypeAlias = Literal[
    "min_norm", "inclusive", "joint", "half", "with_grad", "restoring", "straight_through"
]

CONVENTIONS: tuple[Gradient, ...] = (
    "min_norm",
    "inclusive",
    "joint",
    "half",
    "with_grad",
    "restoring",
    "straight_through",
)

# Dynamo traces the operators; everyone else takes the short way, which skips the operator packet.
_ops = torch.ops.clampgrad


def clamp(
    input: Tensor,
    min: Number | None = None,
    max: Number | None = None,
    *,
    gradient: Gradient = "min_norm",
    maximize: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Clamps every element into [min, max]; like :func:`torch.clamp`, with a named gradient.

    Args:
        input: a Tensor of any shape and real dtype.
        min: the lower bound, or None for none.
        max: the upper bound, or None for none. Wins where ``min > max``.
        gradient: the convention; see the module's documentation.
        maximize: the loss is maximised, not minimised (`with_grad` and `restoring` only).
        out: where to write the result; not differentiable, as everywhere in torch.

    Returns:
        A Tensor of the shape of `input`, of the dtype that `input` and the bounds promote to.
        Bounds are compared after conversion to that dtype.

    Example::

        >>> x = torch.tensor([0.0, 3.0, 6.0, 7.0], requires_grad=True)
        >>> clampgrad.clamp(x, 0, 6).sum().backward()
        >>> x.grad
        tensor([0., 1., 0., 0.])
    """
    if is_dynamo_compiling():
        if out is not None:
            return _ops.clamp.out(input, min, max, gradient=gradient, maximize=maximize, out=out)
        return _ops.clamp.default(input, min, max, gradient=gradient, maximize=maximize)
    return _C.clamp(input, min, max, gradient, maximize, out)


def clamp_(
    input: Tensor,
    min: Number | None = None,
    max: Number | None = None,
    *,
    gradient: Gradient = "min_norm",
    maximize: bool = False,
) -> Tensor:
    """:func:`clamp` in place; returns `input`."""
    if is_dynamo_compiling():
        return _ops.clamp_.default(input, min, max, gradient=gradient, maximize=maximize)
    return _C.clamp_(input, min, max, gradient, maximize, None)


def clamp_min(
    input: Tensor,
    min: Number,
    *,
    gradient: Gradient = "min_norm",
    maximize: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """:func:`clamp` with a lower bound alone; like :func:`torch.clamp_min`."""
    if is_dynamo_compiling():
        if out is not None:
            return _ops.clamp_min.out(input, min, gradient=gradient, maximize=maximize, out=out)
        return _ops.clamp_min.default(input, min, gradient=gradient, maximize=maximize)
    return _C.clamp_min(input, min, None, gradient, maximize, out)


def clamp_min_(
    input: Tensor, min: Number, *, gradient: Gradient = "min_norm", maximize: bool = False
) -> Tensor:
    """:func:`clamp_min` in place; returns `input`."""
    if is_dynamo_compiling():
        return _ops.clamp_min_.default(input, min, gradient=gradient, maximize=maximize)
    return _C.clamp_min_(input, min, None, gradient, maximize, None)


def clamp_max(
    input: Tensor,
    max: Number,
    *,
    gradient: Gradient = "min_norm",
    maximize: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """:func:`clamp` with an upper bound alone; like :func:`torch.clamp_max`."""
    if is_dynamo_compiling():
        if out is not None:
            return _ops.clamp_max.out(input, max, gradient=gradient, maximize=maximize, out=out)
        return _ops.clamp_max.default(input, max, gradient=gradient, maximize=maximize)
    return _C.clamp_max(input, None, max, gradient, maximize, out)


def clamp_max_(
    input: Tensor, max: Number, *, gradient: Gradient = "min_norm", maximize: bool = False
) -> Tensor:
    """:func:`clamp_max` in place; returns `input`."""
    if is_dynamo_compiling():
        return _ops.clamp_max_.default(input, max, gradient=gradient, maximize=maximize)
    return _C.clamp_max_(input, None, max, gradient, maximize, None)


def clamp_with_grad(
    input: Tensor,
    min: Number | None = None,
    max: Number | None = None,
    *,
    maximize: bool = False,
) -> Tensor:
    """:func:`clamp` with ``gradient="with_grad"``, under the name the community gave it.

    Equal to the ``ClampWithGrad`` of many notebooks, ``grad * (grad * (x - clamp(x)) >= 0)``, for
    finite gradients; by selection, so that no product underflows or turns an infinity into NaN.
    """
    return clamp(input, min, max, gradient="with_grad", maximize=maximize)


clip = clamp
clip_ = clamp_
