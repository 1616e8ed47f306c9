"""The autograd function: torch's own forward, and the gradient that the contract asks for."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version
from torch.compiler import is_compiling

from clampgrad._contract.table import STRICT
from clampgrad._implementation.portable.contract import Share, contains, positions, relation, shares
from clampgrad._implementation.portable.forward import (
    as_compared,
    assign,
    batch_at,
    cast,
    copied,
    dtype_of,
    in_dtype,
    stays_unrounded,
    torchs_own,
    uncounted,
)
from clampgrad._torch.dispatcher import next_level
from clampgrad._torch.surroundings import (
    dispatch_modes_are_on,
    forward_mode,
    in_a_compiler,
    is_batched_gradient,
)
from clampgrad._torch.torchs_functions import TORCHS

NOT_TRACED = (
    "clampgrad: torch.jit.trace would keep what this clamp saved in the forward as a constant, for all "
    "inputs. Call clampgrad's function, out of place and not pinned, or use make_fx"
)


class Traced(threading.local):
    """Whether torch.jit.trace records this thread. It hides from what runs inside an operator."""

    on = False


here = Traced()


@contextmanager
def traced_by_jit(on: bool) -> Iterator[None]:
    """A block in which a call saves its arguments, which the trace
    knows, and not their positions."""
    before, here.on = here.on, on
    try:
        yield
    finally:
        here.on = before


def is_in_a_graph() -> bool:
    """Whether the call is recorded in a graph. Under another dispatch mode what is saved has to be
    what is saved without: a checkpoint compares."""
    return here.on or in_a_compiler()


NOT_LINEAR = (
    "clampgrad: forward mode is not defined for the gradients 'with_grad' and 'restoring', which are not "
    "linear in the incoming gradient"
)


@dataclass(eq=False)
class CallSpec:
    """The operator of a call, and the gradient it is to have. The
    arguments are x, lo, hi or x, y."""

    name: str  # torch's
    operator: str  # the contract's
    gradient: str
    numbers: bool  # every argument but x is one
    dtype: torch.dtype  # of the result, in which the arguments are compared

    @property
    def in_place(self) -> bool:
        return self.name.endswith("_")

    def shares(self, differentiated: set[str]) -> dict[str, Share]:
        return shares(self.operator, self.gradient, self.numbers, frozenset(differentiated))

    def forward(self, x: Tensor, *others: Any) -> Tensor:
        """What is called. In place it does not count the version of x: autograd does."""
        if not self.in_place:
            return torchs_own(self.name, x, *others)
        if not dispatch_modes_are_on():
            return torchs_own(self.name, uncounted(x), *others)
        # A selective checkpoint keeps what a clamp returns, and a copy is cheap. A compiler takes
        # what is written while nothing records for a constant of the graph, whose gradient is
        # that of what was written over. And torch.func.linearize runs what reads x before what
        # writes another tensor of its memory. The next level counts no versions.
        result = torchs_own(self.name.rstrip("_"), copied(x), *others)
        with next_level(records=True):
            return assign(x, others, result)

    def linear(self) -> bool:
        """Whether what x gets is linear in g. What a bound gets always is."""
        return is_linear(self.shares(set())["x"])


def is_linear(share: Share) -> bool:
    """Whether a share depends on the position alone, and is a part of g."""
    return all(what == "g" and len(set(at)) == 1 for (what, _), at in share.items())


def select(share: Share, position: Tensor, g: Tensor, passed: Tensor | None = None) -> Tensor:
    """A share of a gradient, or of a tangent. A blocked one is an exact 0.

    With `passed`, what g decides is done to that.
    """
    passed = g if passed is None else passed
    result = torch.zeros_like(passed, device=position.device)
    if g.shape != position.shape:  # a tangent of what is broadcast
        result = result.expand(torch.broadcast_shapes(g.shape, position.shape))
    for (what, divisor), at in share.items():
        value = passed if what == "g" else float(what)
        if len(set(at)) == 1:  # whatever g is
            chosen = contains(at[0], position)
        else:
            sign = relation(g, 0)
            chosen = reduce(or_, (contains(a, position) & (sign == k) for k, a in enumerate(at)))
        result = TORCHS.where(chosen, divided(value, divisor), result)
    return result


def divided(value: Any, divisor: int) -> Any:
    """A part of a gradient, rounded once. On CUDA torch multiplies by the reciprocal of a number,
    but divides by a tensor."""
    if divisor == 1:
        return value
    if divisor == 3 and isinstance(value, Tensor) and value.is_cuda:
        return value / torch.scalar_tensor(3, dtype=value.dtype, device=value.device)
    return value / divisor


def named(flags: tuple[Any, ...]) -> list[tuple[str, Any]]:
    """The values by argument, with its name in the contract."""
    return list(zip(("x", "y") if len(flags) == 2 else ("x", "lo", "hi"), flags))


def needed(ctx: Any) -> set[str]:
    """The arguments whose gradient is asked for."""
    return {name for name, n in named(ctx.needs_input_grad[2:-1]) if n}


def unpacked(ctx: Any, g: Tensor) -> tuple[Tensor, ...]:
    """The saved tensors, the position first, after a check that a
    saved-tensor hook did not change them."""
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
        changing = {key: at for key, at in ctx.share.items() if key[0] == "g"}
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


def locate_elements(
    name: str, gradient: str, args: tuple[Any, ...]
) -> tuple[torch.dtype, list[Any], Tensor]:
    """The dtype of the result, the arguments with numbers rounded to it, and
    the position of every element."""
    functional = name.rstrip("_")
    try:
        dtype = dtype_of(functional, args)
        x, *others = args
        # A compiler would not round a number where it computes in float32 what has 16 bits.
        others = [o if isinstance(o, Tensor) else in_dtype(o, dtype) for o in others]
        y = read = x if functional == name else copied(x)
        if (
            are_numbers(others)
            and gradient in (*STRICT, "straight_through")
            and dispatch_modes_are_on()
            and not any(stays_unrounded(o, dtype) for o in others)
        ):
            # The result lies strictly between numbers just where x does. A compiler keeps it
            # anyway, and finds the position again.
            with torch.no_grad():
                y = torchs_own(functional, read, *others)
        return dtype, [x, *others], positions(*as_compared((y, *others), dtype))
    except (RuntimeError, TypeError, OverflowError):
        torchs_own(functional, *args)  # which raises its own error
        raise


def are_numbers(others: Sequence[Any]) -> bool:
    return not any(isinstance(other, Tensor) for other in others)


class Clamp(torch.autograd.Function):
    """apply(rule, recording, x, *others, position) -> the result.

    `recording` is whether gradients are being recorded in eager mode; the levels of torch.func say
    it themselves. At each level the arguments that require grad or carry a tangent are those that
    are being differentiated, and the position of every element is all that backward needs. It comes
    from outside: torch accepts a view that is written in place as the only result, and no other.
    """

    @classmethod
    def of(cls, name: str, operator: str, gradient: str, *args: Any) -> Tensor:
        dtype, found, position = locate_elements(name, gradient, args)
        rule = CallSpec(name, operator, gradient, are_numbers(args[1:]), dtype)
        return cls.apply(rule, torch.is_grad_enabled(), *found, position)

    @staticmethod
    def forward(rule: CallSpec, recording: bool, *args: Any) -> Tensor:
        y = rule.forward(*args[:-1])
        return args[0] if rule.in_place else y

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.rule, ctx.recording, x, *_, position = inputs
        ctx.with_tangent = set()
        if ctx.rule.in_place:
            ctx.mark_dirty(x)
        # Looked up now, because compiled autograd traces backward, and cannot trace the look-up.
        ctx.found = ctx.rule.shares(needed(ctx))
        ctx.set_materialize_grads(False)  # a constant has no tangent, not one of zeros
        ctx.save_for_backward(position)
        ctx.save_for_forward(position)
        ctx.args = inputs[2:-1] if here.on else None

    @staticmethod
    def backward(ctx: Any, g: Tensor | None) -> tuple[Tensor | None, ...]:
        if g is None:
            return (None,) * len(ctx.needs_input_grad)
        if not ctx.recording:  # a constant; in place, what was there keeps its history
            kept = g if ctx.rule.in_place else None
            return (None, None, kept, *(None,) * (len(ctx.needs_input_grad) - 3))
        g = cast(g, ctx.rule.dtype)  # in place, that of x may be narrower
        found = ctx.found
        if ctx.with_tangent:
            found = ctx.rule.shares(needed(ctx) | ctx.with_tangent)
        if ctx.args is None:
            (position,) = unpacked(ctx, g)
        else:
            position = positions(*as_compared(ctx.args, ctx.rule.dtype))
        # A compiler that traces this cannot trace Pseudo, and takes its operators instead. Under
        # is_grads_batched, a function in Python does not see that its tensors require grad.
        composed = is_compiling() or is_batched_gradient(g)

        def share_of(name: str) -> Tensor:
            share = found[name]
            apply = select if composed or is_linear(share) else Pseudo.apply
            return apply(share, position, g)

        asked = named(ctx.needs_input_grad[2:-1])
        return (None, None, *(share_of(name) if n else None for name, n in asked), None)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        if not ctx.rule.linear():
            raise NotImplementedError(NOT_LINEAR)
        given = {name: t for name, t in named(tangents[2:-1]) if t is not None}
        ctx.with_tangent = set(given)
        recorded = needed(ctx) if ctx.recording else set()
        found = ctx.rule.shares(recorded | set(given))
        (position,) = ctx.saved_tensors
        dtype = ctx.rule.dtype
        # torch switches forward mode off here. A level around this one that differentiates the
        # tangent would take it for a constant, without an error.
        with forward_mode(True):
            with torch.set_grad_enabled(torch.is_grad_enabled() and ctx.recording):
                parts = [select(found[name], position, cast(t, dtype)) for name, t in given.items()]
                result = sum(parts[1:], parts[0])
                if not ctx.rule.in_place or "x" not in given:
                    return result
                # Where nothing records, what is written keeps its history, as x does.
                written = given["x"].copy_(cast(result, given["x"].dtype))
            if is_batched_gradient(written):
                increment_version(written)  # torch asks for it, and batched it is not counted
            return written

    @classmethod
    def vmap(cls, info: Any, in_dims: Any, rule: CallSpec, recording: bool, *args: Any) -> Any:
        """The same one level down."""
        if not rule.in_place:
            x, *others, position = batch_at(0, args, in_dims[2:])
            # One without a dimension counts less in type promotion, but here it has the batch's.
            others = [o.to(rule.dtype) if isinstance(o, Tensor) else o for o in others]
            return cls.apply(rule, recording, x.to(rule.dtype), *others, position), 0
        if in_dims[2] is None:
            raise RuntimeError(
                "vmap: inplace clamp is not possible where a bound is batched and what is written is not"
            )
        if args[0].dim() < args[-1].dim():
            raise RuntimeError(
                "vmap: inplace clamp is not possible where a bound has more dimensions than what is written"
            )
        # Written as it is, and not as a view, which autograd would record.
        cls.apply(rule, recording, args[0], *batch_at(in_dims[2], args, in_dims[2:])[1:])
        return args[0], in_dims[2]


class Extremum(Clamp):
    """The same, for maximum and its kind: the node has their name."""
