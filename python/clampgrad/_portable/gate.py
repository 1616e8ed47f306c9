"""The autograd function: torch's own forward, and the gradient that the contract asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import torch
import torch.autograd.forward_ad as fwad
from torch import Tensor

from clampgrad._portable.contract import (
    contains,
    positions,
    pseudo_gradient,
    relation,
    shares,
)
from clampgrad._table import EXACT

if TYPE_CHECKING:
    from typing import TypeAlias

NOT_LINEAR = (
    "clampgrad: forward mode is not defined for the gradients 'with_grad' and 'restoring': they are no "
    "linear functions of the incoming gradient"
)
Argument: TypeAlias = Tensor | int | float


@dataclass(frozen=True)
class Rule:
    """What an operator computes, and the gradient it is to have."""

    operator: str  # of the contract
    forward: Callable[..., Tensor]  # of its arguments; torch's own
    gradient: str
    maximize: bool
    numbers: bool  # every argument but x is one

    def of_x(self) -> dict[Any, list[int]] | None:
        """The pseudo-gradient of x, if that is none that the shares tell."""
        if self.gradient in EXACT:
            return None
        return pseudo_gradient(self.operator, self.gradient + ", maximize" * self.maximize)

    def linear(self) -> bool:
        """In g: what x gets depends on its position alone, and is g or 0."""
        at = self.of_x()
        return at is None or (set(at) <= {"g"} and all(len(set(w)) == 1 for w in at.values()))

    def share(self, i: int, position: Tensor, t: Tensor, differentiated: frozenset[int]) -> Tensor:
        """What argument `i` gets of a gradient, or gives of a tangent. A blocked one is an exact 0."""
        at = self.of_x() if i == 0 else None
        if at is not None:
            return select(at, position, t)
        result: Tensor | int = 0
        whole = shares(self.operator, self.gradient, self.numbers, differentiated)[i]
        for divisor, chosen in whole.items():
            part = t if divisor == 1 else t / divisor
            result = torch.where(contains(chosen, position), part, result)
        if isinstance(result, Tensor):
            return result
        return t.new_zeros(()).expand(torch.broadcast_shapes(t.shape, position.shape))


def select(at: dict[Any, list[int]], position: Tensor, g: Tensor) -> Tensor:
    sign = relation(g, 0)
    result: Tensor = torch.zeros_like(g)
    for value, chosen in at.items():
        if len(set(chosen)) == 1:  # whatever g is
            where = contains(chosen[0], position)
        else:
            parts = [contains(c, position) & (sign == k) for k, c in enumerate(chosen) if c]
            where = reduce(or_, parts)
        result = torch.where(where, g if value == "g" else float(value), result)
    return result


class Clamp(torch.autograd.Function):
    """apply(rule, recording, x, *others) -> the result, and the position of every element.

    `recording` is whether gradients are being recorded in eager mode; the levels of torch.func say it
    themselves. At each level the arguments that require grad or carry a tangent are those that are
    being differentiated, and the position is all that backward needs.
    """

    @staticmethod
    def forward(rule: Rule, recording: bool, *args: Argument) -> tuple[Tensor, Tensor]:
        y = rule.forward(*args)
        compared = [
            a.to(y.dtype) if isinstance(a, Tensor) else y.new_full((), a)  # as the forward does
            for a in args
        ]
        return y, positions(*compared)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        rule, recording, *args = inputs
        y, position = output
        ctx.mark_non_differentiable(position)
        ctx.set_materialize_grads(False)  # a constant has no tangent, not one of zeros
        ctx.save_for_backward(position)
        ctx.save_for_forward(position)
        ctx.rule, ctx.recording, ctx.dtype = rule, recording, y.dtype
        ctx.with_tangent = frozenset()

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        needed = ctx.needs_input_grad[2:]
        if g is None:
            return (None, None, *(None for _ in needed))
        rule, (position,) = ctx.rule, ctx.saved_tensors
        if not rule.linear() and has_tangent(g):
            raise NotImplementedError(NOT_LINEAR)
        differentiated = {i for i, n in enumerate(needed) if n} | ctx.with_tangent
        return (
            None,
            None,
            *(
                rule.share(i, position, g, frozenset(differentiated)) if n else None
                for i, n in enumerate(needed)
            ),
        )

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, None]:
        rule, (position,) = ctx.rule, ctx.saved_tensors
        if not rule.linear():
            raise NotImplementedError(NOT_LINEAR)
        given = {i: t for i, t in enumerate(tangents[2:]) if t is not None}
        ctx.with_tangent = frozenset(given)
        recorded = {i for i, n in enumerate(ctx.needs_input_grad[2:]) if n and ctx.recording}
        differentiated = frozenset(given) | recorded
        parts = [rule.share(i, position, t.to(ctx.dtype), differentiated) for i, t in given.items()]
        return sum(parts[1:], parts[0]), None

    @classmethod
    def vmap(cls, info: Any, in_dims: Any, rule: Rule, recording: bool, *args: Argument) -> Any:
        """The same one level down, where the batch is the first dimension of the arguments."""
        batched = [(a, d) for a, d in zip(args, in_dims[2:])]
        ranks = [a.dim() - (d is not None) if isinstance(a, Tensor) else -1 for a, d in batched]
        if len({a.dtype for a in args if isinstance(a, Tensor)}) > 1:
            # A Tensor of no dimension promotes as such, also where it has a batch.
            alike = [
                torch.empty((0,) * rank, dtype=a.dtype, device="meta")
                if isinstance(a, Tensor)
                else a
                for a, rank in zip(args, ranks)
            ]
            dtype = rule.forward(*alike).dtype
            batched = [(a.to(dtype) if isinstance(a, Tensor) else a, d) for a, d in batched]
        lowered = [
            a.movedim(d, 0)[(slice(None), *(None,) * (max(ranks) - rank))]
            if isinstance(a, Tensor) and d is not None
            else a
            for (a, d), rank in zip(batched, ranks)
        ]
        return cls.apply(rule, recording, *lowered), (0, 0)


class Extremum(Clamp):
    """The same, for maximum and its kind: the node has their name."""


def has_tangent(g: Tensor) -> bool:
    return fwad._current_level >= 0 and fwad.unpack_dual(g).tangent is not None
