"""The autograd function: torch's own forward, and the gradient that the contract asks for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from clampgrad._contract.table import STRICT
from clampgrad._implementation.portable.contract import Share, contains, positions, relation, shares
from clampgrad._implementation.portable.forward import as_compared, batch_first, torchs_own
from clampgrad._torch.surroundings import is_batched_gradient

NOT_TRACED = (
    "clampgrad: torch.jit.trace would keep what this clamp saved in the forward as a constant, for all "
    "inputs. Call the function of clampgrad, out of place and not pinned, or trace with make_fx"
)


class Traced(threading.local):
    """Whether torch.jit.trace records this thread. It hides from what runs inside an operator."""

    on = False


here = Traced()


@contextmanager
def traced_by_jit(on: bool) -> Iterator[None]:
    """A block in which a call saves its arguments, which the trace knows, and not their positions."""
    before, here.on = here.on, on
    try:
        yield
    finally:
        here.on = before


NOT_LINEAR = (
    "clampgrad: forward mode is not defined for the gradients 'with_grad' and 'restoring', which are not "
    "linear in the incoming gradient"
)


@dataclass(frozen=True)
class Rule:
    """What is called, and the gradient it is to have. The arguments are x, lo, hi or x, y."""

    name: str  # torch's
    operator: str  # the contract's
    gradient: str
    numbers: bool  # every argument but x is one

    def shares(self, differentiated: set[str]) -> dict[str, Share]:
        return shares(self.operator, self.gradient, self.numbers, frozenset(differentiated))

    def forward(self, *args: Any) -> Tensor:
        return torchs_own(self.name, *args)

    def linear(self) -> bool:
        """Whether what x gets is linear in g. What a bound gets always is."""
        return is_linear(self.shares(set())["x"])


def is_linear(share: Share) -> bool:
    """Whether a share depends on the position alone, and is a part of g."""
    return all(what == "g" and len(set(where)) == 1 for (what, _), where in share.items())


def select(share: Share, position: Tensor, g: Tensor, passed: Tensor | None = None) -> Tensor:
    """A share of a gradient, or of a tangent. A blocked one is an exact 0.

    With `passed`, what g decides is done to that.
    """
    passed = g if passed is None else passed
    result = torch.zeros_like(passed)
    if g.shape != position.shape:  # a tangent of what is broadcast
        result = result.expand(torch.broadcast_shapes(g.shape, position.shape))
    for (what, divisor), where in share.items():
        value = passed if what == "g" else float(what)
        if len(set(where)) == 1:  # whatever g is
            chosen = contains(where[0], position)
        else:
            sign = relation(g, 0)
            chosen = reduce(or_, (contains(w, position) & (sign == k) for k, w in enumerate(where)))
        result = torch.where(chosen, value if divisor == 1 else value / divisor, result)
    return result


def named(flags: tuple[Any, ...]) -> list[tuple[str, Any]]:
    """What belongs to each of the arguments, with its name in the contract."""
    return list(zip(("x", "y") if len(flags) == 2 else ("x", "lo", "hi"), flags))


def needed(ctx: Any) -> set[str]:
    """The arguments whose gradient is asked for."""
    return {name for name, n in named(ctx.needs_input_grad[2:]) if n}


def unpacked(ctx: Any, g: Tensor) -> tuple[Tensor, ...]:
    """What was saved, the position first, after a check that it is what was saved: a saved-tensor hook
    may have changed it."""
    saved = ctx.saved_tensors
    if not is_compiling() and torch.jit.is_tracing():
        raise RuntimeError(NOT_TRACED)
    position = saved[0]
    if position.dtype != torch.uint8 or position.shape != g.shape:
        raise RuntimeError(
            f"clampgrad: what was saved for a gradient of shape {list(g.shape)} came back as "
            f"{position.dtype} of shape {list(position.shape)}; a saved-tensor hook must return what it "
            "was given"
        )
    return saved


class Pseudo(torch.autograd.Function):
    """apply(share, position, g) -> the share, which is not linear in g, hence without a tangent."""

    @staticmethod
    def forward(share: Share, position: Tensor, g: Tensor) -> Tensor:
        return select(share, position, g)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.share = inputs[0]
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[None, None, Tensor]:
        position, of = unpacked(ctx, g)
        changing = {key: where for key, where in ctx.share.items() if key[0] == "g"}
        return None, None, select(changing, position, of, g)

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Tensor:
        raise NotImplementedError(NOT_LINEAR)

    @classmethod
    def vmap(cls, info: Any, in_dims: Any, share: Share, *args: Tensor) -> Any:
        batched = (
            a.expand(info.batch_size, *a.shape) if d is None else a.movedim(d, 0)
            for a, d in zip(args, in_dims[1:])
        )
        return cls.apply(share, *batched), 0


class Clamp(torch.autograd.Function):
    """apply(rule, recording, x, *others) -> the result, and the position of every element.

    `recording` is whether gradients are being recorded in eager mode; the levels of torch.func say it
    themselves. At each level the arguments that require grad or carry a tangent are those that are
    being differentiated, and the position is all that backward needs.
    """

    @staticmethod
    def forward(rule: Rule, recording: bool, *args: Any) -> tuple[Tensor, Tensor]:
        y = rule.forward(*args)
        # The result lies strictly between numbers just where x does. A compiler keeps it anyway, and finds
        # the position again.
        x = y if rule.numbers and rule.gradient in (*STRICT, "straight_through") else args[0]
        return y, positions(*as_compared((x, *args[1:]), y))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        y, position = output
        ctx.rule, ctx.recording = inputs[:2]
        ctx.dtype, ctx.with_tangent = y.dtype, set()
        # Looked up now, because compiled autograd traces backward, and cannot trace the look-up.
        ctx.linear, ctx.found = ctx.rule.linear(), ctx.rule.shares(needed(ctx))
        ctx.mark_non_differentiable(position)
        ctx.set_materialize_grads(False)  # a constant has no tangent, not one of zeros
        ctx.save_for_backward(position)
        ctx.save_for_forward(position)
        ctx.args = inputs[2:] if here.on else None

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        if g is None:
            return (None,) * len(ctx.needs_input_grad)
        found = ctx.found
        if ctx.with_tangent:
            found = ctx.rule.shares(needed(ctx) | ctx.with_tangent)
        if ctx.args is None:
            (position,) = unpacked(ctx, g)
        else:
            position = positions(*as_compared(ctx.args, g))
        # A compiler that traces this cannot trace Pseudo, and takes its operators instead. Under
        # is_grads_batched, a function in Python does not see that its tensors require grad.
        composed = is_compiling() or is_batched_gradient(g)

        def share_of(name: str) -> Tensor:
            share = found[name]
            apply = select if composed or is_linear(share) else Pseudo.apply
            return apply(share, position, g)

        asked = named(ctx.needs_input_grad[2:])
        return (None, None, *(share_of(name) if n else None for name, n in asked))

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, None]:
        if not ctx.linear:
            raise NotImplementedError(NOT_LINEAR)
        given = {name: t for name, t in named(tangents[2:]) if t is not None}
        ctx.with_tangent = set(given)
        recorded = needed(ctx) if ctx.recording else set()
        found = ctx.rule.shares(recorded | set(given))
        (position,) = ctx.saved_tensors
        parts = [select(found[name], position, t.to(ctx.dtype)) for name, t in given.items()]
        return sum(parts[1:], parts[0]), None

    @classmethod
    def vmap(cls, info: Any, in_dims: Any, rule: Rule, recording: bool, *args: Any) -> Any:
        """The same one level down."""
        return cls.apply(rule, recording, *batch_first(rule.name, args, in_dims[2:])), (0, 0)


class Extremum(Clamp):
    """The same, for maximum and its kind: the node has their name."""
