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

from clampgrad._contract.messages import MESSAGES
from clampgrad._contract.table import STRICT
from clampgrad._implementation.portable.contract import (
    Share,
    encode_comparisons,
    encode_relation,
    is_in_code_set,
    shares,
)
from clampgrad._implementation.portable.forward import (
    assign,
    batch_at,
    call_torch,
    cast,
    cast_for_comparison,
    copy_if_mutated,
    dtype_of,
    is_left_unrounded,
    round_to_dtype,
    without_version_counter,
)
from clampgrad._torch.dispatcher import next_level
from clampgrad._torch.surroundings import (
    dispatch_modes_are_on,
    forward_mode,
    in_a_compiler,
    is_batched_gradient,
)
from clampgrad._torch.torchs_functions import TORCHS


class JitTraceState(threading.local):
    """Whether torch.jit.trace records this thread. torch does not say so inside an operator."""

    on = False


jit_trace_state = JitTraceState()


@contextmanager
def traced_by_jit(on: bool) -> Iterator[None]:
    """Opens a block in which a call saves its arguments, which the trace knows, and not their
    comparison codes."""
    before, jit_trace_state.on = jit_trace_state.on, on
    try:
        yield
    finally:
        jit_trace_state.on = before


def is_in_a_graph() -> bool:
    """Whether the call is recorded in a graph. Under another dispatch mode a call must save the
    same as without, because a checkpoint compares."""
    return jit_trace_state.on or in_a_compiler()


@dataclass(eq=False)
class CallSpec:
    """The operator of a call, and its convention. The arguments are x, lo, hi or x, y."""

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
        """Runs the operator. In place it does not count the version of x, because autograd does."""
        if not self.in_place:
            return call_torch(self.name, x, *others)
        if not dispatch_modes_are_on():
            return call_torch(self.name, without_version_counter(x), *others)
        # A selective checkpoint keeps the result of a clamp, and a copy is cheap. A compiler treats
        # a write under no_grad as a constant of the graph, and uses the gradient of the old value.
        # And torch.func.linearize runs reads of x before writes to another tensor of its memory.
        # The next level counts no versions.
        result = call_torch(self.name.rstrip("_"), copy_if_mutated(x), *others)
        with next_level(records=True):
            return assign(x, others, result)

    def linear(self) -> bool:
        """Whether the share of x is linear in g. The share of a bound always is."""
        return is_linear(self.shares(set())["x"])


def is_linear(share: Share) -> bool:
    """Whether a share depends on the comparison code alone, and is a part of g."""
    return all(what == "g" and len(set(at)) == 1 for (what, _), at in share.items())


def select(
    share: Share, comparison_code: Tensor, g: Tensor, passed: Tensor | None = None
) -> Tensor:
    """Returns a share of a gradient, or of a tangent. A blocked one is an exact 0.

    With `passed`, returns the share of `passed` that g selects.
    """
    passed = g if passed is None else passed
    result = torch.zeros_like(passed, device=comparison_code.device)
    if g.shape != comparison_code.shape:  # a tangent of what is broadcast
        result = result.expand(torch.broadcast_shapes(g.shape, comparison_code.shape))
    for (what, divisor), at in share.items():
        value = passed if what == "g" else float(what)
        if len(set(at)) == 1:  # whatever g is
            chosen = is_in_code_set(at[0], comparison_code)
        else:
            sign = encode_relation(g, 0)
            chosen = reduce(
                or_, (is_in_code_set(a, comparison_code) & (sign == k) for k, a in enumerate(at))
            )
        result = TORCHS.where(chosen, divide(value, divisor), result)
    return result


def divide(value: Any, divisor: int) -> Any:
    """Divides a gradient, and rounds once. On CUDA torch multiplies by the reciprocal of a number,
    but divides by a tensor."""
    if divisor == 1:
        return value
    if divisor == 3 and isinstance(value, Tensor) and value.is_cuda:
        return value / torch.scalar_tensor(3, dtype=value.dtype, device=value.device)
    return value / divisor


def zip_argument_names(flags: tuple[Any, ...]) -> list[tuple[str, Any]]:
    """Pairs a value per argument with the name of the argument in the contract."""
    return list(zip(("x", "y") if len(flags) == 2 else ("x", "lo", "hi"), flags))


def arguments_needing_grad(ctx: Any) -> set[str]:
    """Returns the names of the arguments whose gradient is needed."""
    return {name for name, n in zip_argument_names(ctx.needs_input_grad[2:-1]) if n}


def unpack_saved_tensors(ctx: Any, g: Tensor) -> tuple[Tensor, ...]:
    """Returns the saved tensors, the comparison code first, and checks that a saved-tensor hook did
    not change it."""
    saved = ctx.saved_tensors
    if not is_compiling() and torch.jit.is_tracing():
        raise RuntimeError(MESSAGES["kNotTraced"])
    comparison_code = saved[0]
    if comparison_code.dtype != torch.uint8 or comparison_code.shape != g.shape:
        raise RuntimeError(
            f"clampgrad: what was saved for a gradient of shape {list(g.shape)} came back as "
            f"{comparison_code.dtype} of shape {list(comparison_code.shape)}; a saved-tensor hook must return what it "
            "was given"
        )
    return saved


class Pseudo(torch.autograd.Function):
    """apply(share, comparison_code, g) -> the share. Not linear in g, so without a tangent."""

    @staticmethod
    def forward(share: Share, comparison_code: Tensor, g: Tensor) -> Tensor:
        return select(share, comparison_code, g)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.share = inputs[0]
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[None, None, Tensor]:
        comparison_code, of = unpack_saved_tensors(ctx, g)
        changing = {key: at for key, at in ctx.share.items() if key[0] == "g"}
        return None, None, select(changing, comparison_code, of, g)

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Tensor:
        raise NotImplementedError(MESSAGES["kNotLinear"])

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
    """Returns the dtype of the result, the arguments with numbers rounded to it, and the comparison
    code of every element."""
    functional = name.rstrip("_")
    try:
        dtype = dtype_of(functional, args)
        x, *others = args
        # A compiler would not round a number where it computes in float32 what has 16 bits.
        others = [o if isinstance(o, Tensor) else round_to_dtype(o, dtype) for o in others]
        y = read = x if functional == name else copy_if_mutated(x)
        if (
            are_numbers(others)
            and gradient in (*STRICT, "straight_through")
            and dispatch_modes_are_on()
            and not any(is_left_unrounded(o, dtype) for o in others)
        ):
            # The result lies strictly between numbers just where x does. A compiler keeps it
            # anyway, and computes the code again.
            with torch.no_grad():
                y = call_torch(functional, read, *others)
        return dtype, [x, *others], encode_comparisons(*cast_for_comparison((y, *others), dtype))
    except (RuntimeError, TypeError, OverflowError):
        try:
            call_torch(functional, *args)  # which raises its own error
        except NotImplementedError:
            if name != functional:
                # It names itself, where there is no kernel for it. A subclass may have one that
                # writes, so it gets a copy.
                call_torch(name, args[0].clone(), *args[1:])
            raise
        raise


def are_numbers(others: Sequence[Any]) -> bool:
    return not any(isinstance(other, Tensor) for other in others)


class Clamp(torch.autograd.Function):
    """apply(spec, recording, x, *others, comparison_code) -> the result.

    `recording` is whether gradients are being recorded in eager mode; the levels of torch.func say
    it themselves. At each level the arguments that require grad or carry a tangent are those that
    are being differentiated, and the comparison code of every element is all that backward needs.
    It is an argument: torch accepts a view that is written in place as the only result, and no
    other."""

    @classmethod
    def of(cls, name: str, operator: str, gradient: str, *args: Any) -> Tensor:
        dtype, located, comparison_code = locate_elements(name, gradient, args)
        spec = CallSpec(name, operator, gradient, are_numbers(args[1:]), dtype)
        return cls.apply(spec, torch.is_grad_enabled(), *located, comparison_code)

    @staticmethod
    def forward(spec: CallSpec, recording: bool, *args: Any) -> Tensor:
        y = spec.forward(*args[:-1])
        return args[0] if spec.in_place else y

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.spec, ctx.recording, x, *_, comparison_code = inputs
        ctx.with_tangent = set()
        if ctx.spec.in_place:
            ctx.mark_dirty(x)
        # Looked up now, because compiled autograd traces backward, and cannot trace the look-up.
        ctx.shares = ctx.spec.shares(arguments_needing_grad(ctx))
        ctx.set_materialize_grads(False)  # a constant has no tangent, not one of zeros
        ctx.save_for_backward(comparison_code)
        ctx.save_for_forward(comparison_code)
        ctx.args = inputs[2:-1] if jit_trace_state.on else None

    @staticmethod
    def backward(ctx: Any, g: Tensor | None) -> tuple[Tensor | None, ...]:
        if g is None:
            return (None,) * len(ctx.needs_input_grad)
        if not ctx.recording:  # a constant; in place, what was there keeps its history
            grad_of_x = g if ctx.spec.in_place else None
            return (None, None, grad_of_x, *(None,) * (len(ctx.needs_input_grad) - 3))
        g = cast(g, ctx.spec.dtype)  # in place, that of x may be narrower
        share_by_name = ctx.shares
        if ctx.with_tangent:
            share_by_name = ctx.spec.shares(arguments_needing_grad(ctx) | ctx.with_tangent)
        if ctx.args is None:
            (comparison_code,) = unpack_saved_tensors(ctx, g)
        else:
            comparison_code = encode_comparisons(*cast_for_comparison(ctx.args, ctx.spec.dtype))
        # A compiler that traces this cannot trace Pseudo, and takes its operators instead. Under
        # is_grads_batched, a function in Python does not see that its tensors require grad.
        composed = is_compiling() or is_batched_gradient(g)

        def share_of(name: str) -> Tensor:
            share = share_by_name[name]
            apply = select if composed or is_linear(share) else Pseudo.apply
            return apply(share, comparison_code, g)

        needed_flags = zip_argument_names(ctx.needs_input_grad[2:-1])
        return (None, None, *(share_of(name) if n else None for name, n in needed_flags), None)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        if not ctx.spec.linear():
            raise NotImplementedError(MESSAGES["kNotLinear"])
        given = {name: t for name, t in zip_argument_names(tangents[2:-1]) if t is not None}
        ctx.with_tangent = set(given)
        needing_grad = arguments_needing_grad(ctx) if ctx.recording else set()
        share_by_name = ctx.spec.shares(needing_grad | set(given))
        (comparison_code,) = ctx.saved_tensors
        dtype = ctx.spec.dtype
        # torch switches forward mode off here. A level around this one that differentiates the
        # tangent would take it for a constant, without an error.
        with forward_mode(True):
            with torch.set_grad_enabled(torch.is_grad_enabled() and ctx.recording):
                parts = [
                    select(share_by_name[name], comparison_code, cast(t, dtype))
                    for name, t in given.items()
                ]
                result = sum(parts[1:], parts[0])
                if not ctx.spec.in_place or "x" not in given:
                    return result
                # Where nothing records, what is written keeps its history, as x does.
                written = given["x"].copy_(cast(result, given["x"].dtype))
            if is_batched_gradient(written):
                increment_version(written)  # torch asks for it, and batched it is not counted
            return written

    @classmethod
    def vmap(cls, info: Any, in_dims: Any, spec: CallSpec, recording: bool, *args: Any) -> Any:
        """Applies the function one level down."""
        if not spec.in_place:
            x, *others, comparison_code = batch_at(0, args, in_dims[2:])
            # One without a dimension counts less in type promotion, but here it has the batch's.
            others = [o.to(spec.dtype) if isinstance(o, Tensor) else o for o in others]
            return cls.apply(spec, recording, x.to(spec.dtype), *others, comparison_code), 0
        if in_dims[2] is None:
            raise RuntimeError(MESSAGES["kInputNotBatched"])
        if args[0].dim() < args[-1].dim():
            raise RuntimeError(MESSAGES["kBoundHasMoreDims"])
        # Written as it is, and not as a view, which autograd would record.
        cls.apply(spec, recording, args[0], *batch_at(in_dims[2], args, in_dims[2:])[1:])
        return args[0], in_dims[2]


class Extremum(Clamp):
    """A subclass only for its name: grad_fn of a maximum is called ExtremumBackward."""
