"""The examination of one call: its elements before it runs, and the gradient that arrives."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor

from clampgrad._contract.table import CANONICAL
from clampgrad._pin.pin import pin
from clampgrad._tools.audit.callers import Caller, find_call_origin, is_in_differentiated_graph
from clampgrad._tools.audit.calls import (
    TRACED,
    VALUELESS,
    Call,
    Operands,
    Operator,
    find_read_problem,
)
from clampgrad._tools.audit.consumers import Consumers, Side
from clampgrad._tools.audit.lint import note_rounding
from clampgrad._tools.audit.observer import ResultHandler
from clampgrad._tools.audit.positions import (
    cast_for_comparison,
    find_bound_bits,
    find_positions,
    round_to_dtype,
)
from clampgrad._tools.audit.report import Report
from clampgrad._tools.audit.sites import Site, SiteKey, Variant
from clampgrad._torch.dispatcher import exclude_outer_levels
from clampgrad._torch.surroundings import (
    base_of,
    hidden_from_modes,
    in_autodiff,
    in_backward,
    in_forward_mode,
    in_transform,
    is_of_transform,
    is_recorded_here,
    unwrapped,
)
from clampgrad._torch.tangents import carried
from clampgrad._torch.torchs_functions import TORCHS

# Bytes for finding dead elements, one per element; for call sites beyond that, `dead` is None.
MEMORY = 1 << 28


class Examination:
    """Adds the calls of one audit to its report."""

    def __init__(
        self, report: Report, consumers: Consumers, operators: dict[Any, Operator], every: int
    ) -> None:
        self._report, self._consumers, self._every = report, consumers, every
        self._operators = operators  # of the functions that are themselves of the clamp family
        self._memory = MEMORY
        self._hooks: WeakSet[GradientHook] = WeakSet()

    def end(self) -> None:
        """Disables the hooks in graphs, which may outlive the audit."""
        for hook in list(self._hooks):
            hook.disable()

    def examine_kernel_call(
        self, packet: str, operator: Operator, operands: Operands
    ) -> ResultHandler | None:
        """Examines a call that a kernel announces, by its name in aten; returns what to do with
        its result."""
        if not _is_examined(operands):
            return None
        tensors = [v for v in operands if isinstance(v, Tensor)]
        is_recorded = is_recorded_here(tensors)
        # Another level of torch.func may record it, and then announces it again; or none does.
        is_of_this_level = is_recorded or not (in_transform() or in_backward())
        reasons = []
        if in_forward_mode() and carried(tensors):
            reasons.append("forward mode")
        if is_of_this_level and not is_recorded and torch.is_grad_enabled() and in_autodiff():
            reasons.append("TorchScript differentiates it")
        if is_of_this_level and not torch.is_grad_enabled() and is_in_differentiated_graph():
            reasons.append("differentiated beforehand")
        handlers: list[ResultHandler] = [self._skip_handler(reason) for reason in reasons]
        problem = find_read_problem(operands)
        if is_of_this_level and problem:
            handlers += self._skip_problem(problem, operator)
        elif is_of_this_level:
            caller, outermost = find_call_origin()
            called = self._operators.get(outermost.function)
            name = outermost.name or packet
            is_direct = name == packet or (called is not None and called.follows_torch)
            through = "" if is_direct else packet.rstrip("_")
            call = describe_call(name, through, operator, operands, {})
            if handler := self._examine(caller, call, operands):
                handlers.append(handler)
        if not handlers:
            return None

        def handle_result(result: Any) -> None:
            for handler in handlers:
                handler(result)

        return handle_result

    def examine_python_call(
        self, function: Any, operator: Operator, operands: Operands, kwargs: dict[str, Any]
    ) -> ResultHandler | None:
        """Does the same for a call that no kernel announces."""
        if not _is_examined(operands):
            return None
        if problem := find_read_problem(operands):
            return next(iter(self._skip_problem(problem, operator)), None)
        name = getattr(function, "__name__", str(function))
        if operator.is_ours:
            name = f"clampgrad.{name}"
        with hidden_from_modes():
            operands = read_number_bounds(name, operands)
        caller, _ = find_call_origin()
        return self._examine(caller, describe_call(name, "", operator, operands, kwargs), operands)

    def _examine(self, caller: Caller, call: Call, operands: Operands) -> ResultHandler | None:
        x, *bounds = operands
        if not x.numel():
            return None  # nothing to count
        with hidden_from_modes():
            site, variant = self._find_site(caller, call)
            # A checkpoint runs its forward again, whose elements were counted. If the first one was
            # recorded, the gradient arrives there; if not, it arrives at the second.
            is_again = in_backward() and not site.is_of_backward
            if not variant.is_due(self._every, is_again):
                return lambda _: variant.count_missed(is_again)
            # What the call may write is read before it: the elements, the bounds, the node of x.
            element_positions = find_positions(*cast_for_comparison(operands, call.dtype))
            numbers = [_read_number(bound) for bound in bounds]
            followed = self._find_followed_bounds(site, operands, numbers)
        upstream = x.grad_fn, x.output_nr

        def handle_result(result: Any) -> None:
            variant.has_returned = True
            with hidden_from_modes():
                if not is_again:
                    with outside_transforms():
                        positions = unwrapped(element_positions)
                        self._memory -= variant.count_call(positions, self._memory)
                note_bounds(site, call.dtype, bounds, numbers)
            self._follow_result(variant, element_positions, followed, x, *upstream, result)

        return handle_result

    def _skip_problem(self, problem: str, operator: Operator) -> list[ResultHandler]:
        """Returns what counts a call whose elements cannot be read, unless a trace records it."""
        may_have_changed = operator.follows_torch and problem != VALUELESS
        return [] if problem in TRACED else [self._skip_handler(problem, may_have_changed)]

    def _skip_handler(self, reason: str, may_have_changed: bool = True) -> ResultHandler:
        """Returns what counts a call as skipped: only once it has a result, because a call that
        raises an error is none."""
        return lambda _: self._report._skip(reason, may_have_changed)

    def _find_followed_bounds(
        self, site: Site, operands: Operands, numbers: list[float | None]
    ) -> list[tuple[Side, float]]:
        """Returns the bounds that the result may be equal to: those of this call, and those of an
        earlier one that lie between them."""
        if in_transform():
            return []  # the bounds of a result are followed outside of transforms
        x, *bounds = operands
        inf = float("inf")
        finite = {
            side: v for side, v in zip(("min", "max"), numbers) if v is not None and abs(v) < inf
        }
        followed = [((site, side), v) for side, v in finite.items()]
        if all(b is None or v is not None for b, v in zip(bounds, numbers)):
            lo, hi = finite.get("min", -inf), finite.get("max", inf)
            followed += self._consumers.bounds_between(x, lo, hi)
        return followed

    def _find_site(self, caller: Caller, call: Call) -> tuple[Site, Variant]:
        key = SiteKey(caller, call.function, call.through, call.gradient)
        site = self._report._sites.get(key)
        if site is None and in_backward():
            # No function mode names a call that a checkpoint runs again.
            sites = list(self._report._sites.values())
            site = next((s for s in sites if s.may_run_again_as(key, call)), None)
        if site is None:
            site = self._report._sites.setdefault(key, Site(key, in_backward()))
        variant = site.find_variant(call)
        if variant is None:
            with outside_transforms():
                variant = site.add_variant(Variant(call))
        return site, variant

    # ---- The gradient ----------------------------------------------------------------------------

    def _follow_result(
        self,
        variant: Variant,
        element_positions: Tensor,
        bounds: list[tuple[Side, float]],
        x: Tensor,
        upstream: Any,
        upstream_output: int,
        result: Any,
    ) -> None:
        """Follows the bounds of a result, and hooks the node where its gradient arrives, and the
        one upstream of the call, which made the input."""
        if bounds and not result.is_inference():
            with hidden_from_modes():
                bounds = [(side, round_to_dtype(v, result.dtype)) for side, v in bounds]
            self._consumers.begin(result, bounds)
        if not variant.records_gradient:
            return
        node, output, select_part = _find_gradient_node(result, is_mutated=result is x)
        if node is None:
            self._report._skip("a result without a node")
            return

        def add_gradient(gradients: tuple[Any, ...]) -> None:
            self._report._run_safely(
                self._add_gradient, variant, element_positions, select_part, gradients[output]
            )

        node.register_prehook(self._make_hook(add_gradient))
        if upstream is not None and not in_transform():
            name = upstream.name()  # a hook that held its own node would keep the graph

            def count_upstream(grad_inputs: tuple[Any, ...], grad_outputs: tuple[Any, ...]) -> None:
                self._report._run_safely(
                    self._count_upstream, variant, name, grad_inputs, grad_outputs[upstream_output]
                )

            upstream.register_hook(self._make_hook(count_upstream))

    def _make_hook(self, function: Callable[..., None]) -> "GradientHook":
        hook = GradientHook(function)
        self._hooks.add(hook)
        return hook

    def _count_upstream(
        self,
        variant: Variant,
        node: str,
        grad_inputs: tuple[Tensor | None, ...],
        grad_output: Tensor | None,
    ) -> None:
        """Counts the infinite and NaN gradients that a node makes of the 0 from the call, if it
        works element by element."""
        if grad_output is None or is_of_transform(grad_output):
            return
        if find_read_problem((grad_output, *grad_inputs)):
            return
        with hidden_from_modes():
            alike = [g for g in grad_inputs if g is not None and g.shape == grad_output.shape]
            # Most gradients are finite, which their sum shows in one pass.
            alike = [g for g in alike if not g.sum().isfinite()]
            variant.not_finite_upstream[node] += sum(
                int((~g.isfinite() & (grad_output == 0)).sum()) for g in alike
            )

    def _add_gradient(
        self,
        variant: Variant,
        element_positions: Tensor,
        select_part: Callable[[Tensor], Tensor],
        g: Tensor | None,
    ) -> None:
        if g is None:
            return
        problem = find_read_problem((g,))
        if problem:
            self._report._skip(problem, variant.call.operator.follows_torch)
            return
        with hidden_from_modes():
            element_positions, g = unwrap_together(element_positions, select_part(g.detach()))
            with outside_transforms():
                variant.add_gradient(element_positions, g)


class GradientHook:
    """A hook of a node, which does nothing any more once the audit has ended."""

    def __init__(self, function: Callable[..., None]) -> None:
        self._function = function

    def __call__(self, *gradients: Any) -> None:
        self._function(*gradients)

    def disable(self) -> None:
        self._function = _ignore_gradients


def _ignore_gradients(*gradients: Any) -> None:
    pass


def _is_examined(operands: Operands) -> bool:
    """Whether a call has a gradient, and a bound. Without a bound, torch raises an error."""
    return any(b is not None for b in operands[1:]) and any(
        isinstance(v, Tensor) and v.is_floating_point() for v in operands
    )


def _find_gradient_node(
    result: Tensor, is_mutated: bool
) -> tuple[Any, int, Callable[[Tensor], Tensor]]:
    """Returns the node where the gradient of a result arrives, at which output, and a function that
    selects the result's part of it. For a view that was mutated, that is the node of its base."""
    base = base_of(result) if is_mutated and not is_of_transform(result) else None
    if base is None or base.grad_fn is None:
        return result.grad_fn, result.output_nr, lambda g: g
    size, stride, is_negated = base.size(), base.stride(), result.is_neg()
    is_of_parts = base.is_complex() and not result.is_complex()  # view_as_real, .real, .imag
    offset = result.storage_offset() - base.storage_offset() * (2 if is_of_parts else 1)
    view = result.size(), result.stride(), offset

    def select_part(g: Tensor) -> Tensor:
        dense = g.new_empty_strided(size, stride).copy_(g)
        part = (torch.view_as_real(dense) if is_of_parts else dense).as_strided(*view)
        return -part if is_negated else part

    return base.grad_fn, base.output_nr, select_part


def outside_transforms() -> AbstractContextManager[Any]:
    """Returns a context in which unwrapped Tensors can be computed with."""
    return exclude_outer_levels() if in_transform() else nullcontext()


def unwrap_together(element_positions: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """Unwraps both in one Tensor, so that their elements still belong together: one of them may
    have a batch dimension that the other has not."""
    if not is_of_transform(element_positions) and not is_of_transform(g):
        return element_positions, g
    both = unwrapped(torch.complex(element_positions.double(), g.double()))
    with outside_transforms():
        return both.real.to(torch.uint8), both.imag


def read_number_bounds(function: str, operands: Operands) -> Operands:
    """Returns the operands, with a number for each bound without dimensions that torch reads as
    one: a bound of hardtanh, and one beside a number."""
    x, *bounds = operands
    if function.startswith("clampgrad."):
        return operands  # where a Tensor is a Tensor
    has_number = any(b is not None and not isinstance(b, Tensor) for b in bounds)
    if has_number or function == "hardtanh":
        bounds = [b.item() if isinstance(b, Tensor) and not b.dim() else b for b in bounds]
    return (x, *bounds)


def dtype_of_result(operands: Operands) -> torch.dtype:
    """Applies torch's own rules, in which a Tensor without dimensions counts less than others."""
    tensors = [t for t in operands if isinstance(t, Tensor)]
    if len({t.dtype for t in tensors}) == 1:
        return tensors[0].dtype
    empty = [torch.empty((0,) * t.dim(), dtype=t.dtype, device="meta") for t in tensors]
    return TORCHS.clamp(*empty).dtype  # of two or three


def describe_call(
    function: str, through: str, operator: Operator, operands: Operands, kwargs: dict[str, Any]
) -> Call:
    """Returns the facts that decide how a call differentiates."""
    x, lo, hi = operands
    are_tensors = isinstance(lo, Tensor), isinstance(hi, Tensor)
    with hidden_from_modes():
        dtype = dtype_of_result(operands)
        with outside_transforms():
            bound_bits = None if any(are_tensors) else find_bound_bits(dtype, lo, hi)
    differentiated: Any = tuple(isinstance(v, Tensor) and is_recorded_here([v]) for v in operands)
    gradient = kwargs.get("gradient", "min_norm")
    keywords = {"gradient": CANONICAL.get(gradient, gradient)} if operator.is_ours else {}
    if kwargs.get("maximize"):
        keywords["maximize"] = True
    return Call(
        function=function,
        through=through,
        operator=operator,
        keywords=tuple(keywords.items()),
        are_tensors=are_tensors,
        differentiated=differentiated,
        has_bound=(lo is not None, hi is not None),
        bound_bits=bound_bits,
        dtype=dtype,
        device=x.device,
        pin=pin.current() if operator.follows_torch else None,
    )


def note_bounds(
    site: Site, dtype: torch.dtype, bounds: list[Any], numbers: list[float | None]
) -> None:
    """Notes the bounds of a call for the report, and where the dtype rounds those that are one
    number each."""
    site.remember_bounds(
        *("" if v is None else "Tensor" if isinstance(v, Tensor) else f"{v:g}" for v in bounds)
    )
    note_rounding(site, dtype, *numbers)


def _read_number(bound: Any) -> float | None:
    """Returns the bound, if it is one number for every element."""
    if isinstance(bound, Tensor):
        is_one = bound.numel() == 1 and not in_transform()
        return float(bound.detach()) if is_one else None
    return None if bound is None else float(bound)
