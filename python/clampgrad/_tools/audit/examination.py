"""The examination of one call: its elements before it runs, and the gradient that arrives."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor

from clampgrad._contract.table import CANONICAL
from clampgrad._pin.pin import pin
from clampgrad._tools.audit.callers import Caller, in_differentiated_graph, led_here
from clampgrad._tools.audit.calls import TRACED, VALUELESS, Call, Operands, Operator, unreadable
from clampgrad._tools.audit.consumers import Consumers, Side
from clampgrad._tools.audit.lint import note_rounding
from clampgrad._tools.audit.positions import compared, of_bounds, positions, rounded
from clampgrad._tools.audit.report import Report
from clampgrad._tools.audit.sites import Key, Site, Variant
from clampgrad._torch.dispatcher import exclude_outer_levels
from clampgrad._torch.surroundings import (
    base_of,
    in_autodiff,
    in_backward,
    in_forward_mode,
    in_transform,
    is_of_transform,
    is_recorded_here,
    unseen,
    unwrapped,
)
from clampgrad._torch.tangents import carried
from clampgrad._torch.torchs_functions import TORCHS

# Bytes for finding dead elements, one per element; for call sites beyond that, `dead` is None.
MEMORY = 1 << 28

Then = Callable[[Any], None]


class Examination:
    """Adds the calls of one audit to its report."""

    def __init__(
        self, report: Report, consumers: Consumers, known: dict[Any, Operator], every: int
    ) -> None:
        self._report, self._consumers, self._every = report, consumers, every
        self._known = known  # the functions that are themselves of the clamp family
        self._memory = MEMORY
        self._ears: WeakSet[Ear] = WeakSet()

    def end(self) -> None:
        """Leaves nothing of the audit in graphs that outlive it."""
        for ear in list(self._ears):
            ear.listen = _do_nothing

    def of_kernel(self, packet: str, operator: Operator, operands: Operands) -> Then | None:
        """Counts a call of aten's; returns what to do with its result."""
        tensors = [v for v in operands if isinstance(v, Tensor)]
        if not _is_examined(operands):
            return None
        recorded = is_recorded_here(tensors)
        # Otherwise another level of torch.func will record it, or tells of it; or nobody.
        is_here = recorded or not (in_transform() or in_backward())
        reasons = []
        if in_forward_mode() and carried(tensors):
            reasons.append("forward mode")
        if is_here and not recorded and torch.is_grad_enabled() and in_autodiff():
            reasons.append("TorchScript differentiates it")
        if is_here and not torch.is_grad_enabled() and in_differentiated_graph():
            reasons.append("differentiated beforehand")
        then = self._of_kernel(packet, operator, operands) if is_here else None
        if not reasons:
            return then

        def skip_too(result: Any) -> None:
            for reason in reasons:
                self._report._skip(reason)
            if then:
                then(result)

        return skip_too

    def _of_kernel(self, packet: str, operator: Operator, operands: Operands) -> Then | None:
        caller, outermost = led_here()
        direct = self._known.get(outermost.function)
        name = outermost.name or packet
        is_direct = name == packet or (direct is not None and direct.follows_torch)
        through = "" if is_direct else packet.rstrip("_")
        call = describe(name, through, operator, operands, {})
        return self._of(caller, call, operands)

    def of_python(
        self, function: Any, operator: Operator, operands: Operands, kwargs: dict[str, Any]
    ) -> Then | None:
        """The same of a call that no kernel tells of."""
        if not _is_examined(operands):
            return None
        name = getattr(function, "__name__", str(function))
        if operator.is_ours:
            name = f"clampgrad.{name}"
        with unseen():
            operands = with_numbers(name, operands)
        caller, _ = led_here()
        return self._of(caller, describe(name, "", operator, operands, kwargs), operands)

    def _of(self, caller: Caller, call: Call, operands: Operands) -> Then | None:
        reason = unreadable(operands)
        if reason:
            if reason in TRACED:
                return None
            may_have_changed = call.operator.follows_torch and reason != VALUELESS
            # After the call, which may raise an error: then it is none.
            return lambda _: self._report._skip(reason, may_have_changed)
        x = operands[0]
        if not x.numel():
            return None  # nothing to count
        with unseen():
            site, variant = self._site(caller, call)
            # A checkpoint runs its forward again, whose elements were counted. If the first one was
            # recorded, the gradient arrives there; if not, it arrives at the second.
            is_again = in_backward() and not site.is_of_backward
            if not variant.is_due(self._every, is_again):
                return None
            where = positions(*compared(operands, call.dtype))
            if not is_again:
                with escaped():
                    self._memory -= variant.see(unwrapped(where), self._memory)
            known = self._bounds(site, variant.call, operands)
        # Before an in-place call gives x a node of its own.
        return partial(self._listen, variant, where, known, x, x.grad_fn, x.output_nr)

    def _bounds(self, site: Site, call: Call, operands: Operands) -> list[tuple[Side, float]]:
        sides = _note_bounds(site, call, operands)
        if in_transform():
            return []  # the bounds of a result are followed outside of transforms
        known = [((site, side), v) for side, v in sides.items()]
        if all(v is None or _number(v) is not None for v in operands[1:]):
            inf = float("inf")
            lo, hi = sides.get("min", -inf), sides.get("max", inf)
            known += self._consumers.between(operands[0], lo, hi)
        return known

    def _site(self, caller: Caller, call: Call) -> tuple[Site, Variant]:
        key = Key(caller, call.function, call.through, call.gradient)
        site = self._report._sites.get(key)
        if site is None:
            site = self._report._sites.setdefault(key, Site(key, in_backward()))
        variant = site.variants.get(call)
        if variant is None:
            with escaped():
                variant = site.variants.setdefault(call, Variant(call))
        return site, variant

    # ---- The gradient ----------------------------------------------------------------------------

    def _listen(
        self,
        variant: Variant,
        where: Tensor,
        sides: list[tuple[Side, float]],
        x: Tensor,
        before: Any,
        of_before: int,
        result: Any,
    ) -> None:
        """Follows the bounds of a result, and waits for its gradient, and for
        that of what made the input."""
        if sides and not result.is_inference():
            with unseen():
                known = [(side, rounded(v, result.dtype)) for side, v in sides]
            self._consumers.begin(result, known)
        if not variant.records:
            return
        node, output, part = _arrives(result, is_written=result is x)
        if node is None:
            self._report._skip("a result without a node")
            return

        def arrived(gradients: tuple[Any, ...]) -> None:
            self._report._safely(self._hear, variant, where, part, gradients[output])

        node.register_prehook(self._ear(arrived))
        if before is not None and not in_transform():
            name = before.name()  # a hook that held its own node would keep the graph

            def made_of(made: tuple[Any, ...], given: tuple[Any, ...]) -> None:
                self._report._safely(self._hear_behind, variant, name, made, given[of_before])

            before.register_hook(self._ear(made_of))

    def _ear(self, listen: Callable[..., None]) -> "Ear":
        ear = Ear(listen)
        self._ears.add(ear)
        return ear

    def _hear_behind(
        self, variant: Variant, node: str, made: tuple[Tensor | None, ...], given: Tensor | None
    ) -> None:
        """Counts what a node makes of the 0 that it is given, where it works element by element."""
        if given is None or unreadable((given, *made)) or is_of_transform(given):
            return
        with unseen():
            alike = [g for g in made if g is not None and g.shape == given.shape]
            # A sum that is finite tells in one pass that all are, as they nearly always are.
            alike = [g for g in alike if not g.sum().isfinite()]
            variant.behind[node] += sum(int((~g.isfinite() & (given == 0)).sum()) for g in alike)

    def _hear(
        self, variant: Variant, where: Tensor, part: Callable[[Tensor], Tensor], g: Tensor | None
    ) -> None:
        if g is None:
            return
        reason = unreadable((g,))
        if reason:
            self._report._skip(reason, variant.call.operator.follows_torch)
            return
        with unseen():
            where, g = together(where, part(g.detach()))
            with escaped():
                variant.hear(where, g)


class Ear:
    """A hook of a node, which listens until the audit ends."""

    def __init__(self, listen: Callable[..., None]) -> None:
        self.listen = listen

    def __call__(self, *gradients: Any) -> None:
        self.listen(*gradients)


def _do_nothing(*gradients: Any) -> None:
    pass


def _is_examined(operands: Operands) -> bool:
    """Whether a call has a gradient, and a bound. Without a bound, torch raises an error."""
    return any(b is not None for b in operands[1:]) and any(
        isinstance(v, Tensor) and v.is_floating_point() for v in operands
    )


def _arrives(result: Tensor, is_written: bool) -> tuple[Any, int, Callable[[Tensor], Tensor]]:
    """The node where the gradient of a result arrives, at which output, and which part of it. If
    the result is a view that was written, that is the node of what it is a view of."""
    base = base_of(result) if is_written and not is_of_transform(result) else None
    if base is None or base.grad_fn is None:
        return result.grad_fn, result.output_nr, lambda g: g
    size, stride, is_negated = base.size(), base.stride(), result.is_neg()
    is_of_parts = base.is_complex() and not result.is_complex()  # view_as_real, .real, .imag
    offset = result.storage_offset() - base.storage_offset() * (2 if is_of_parts else 1)
    at = result.size(), result.stride(), offset

    def part(g: Tensor) -> Tensor:
        dense = g.new_empty_strided(size, stride).copy_(g)
        seen = (torch.view_as_real(dense) if is_of_parts else dense).as_strided(*at)
        return -seen if is_negated else seen

    return base.grad_fn, base.output_nr, part


def escaped() -> AbstractContextManager[Any]:
    """A block for what has been unwrapped."""
    return exclude_outer_levels() if in_transform() else nullcontext()


def together(where: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """Both unwrapped, element by element: one may have a batch that the other has not."""
    if not is_of_transform(where) and not is_of_transform(g):
        return where, g
    both = unwrapped(torch.complex(where.double(), g.double()))
    with escaped():
        return both.real.to(torch.uint8), both.imag


def with_numbers(function: str, operands: Operands) -> Operands:
    """The operands, with a number for a bound without dimensions that torch reads as one: of
    hardtanh, and beside a number."""
    x, *bounds = operands
    if function.startswith("clampgrad."):
        return operands  # where a Tensor is a Tensor
    numbers = any(b is not None and not isinstance(b, Tensor) for b in bounds)
    if numbers or function == "hardtanh":
        bounds = [b.item() if isinstance(b, Tensor) and not b.dim() else b for b in bounds]
    return (x, *bounds)


def dtype_of_result(operands: Operands) -> torch.dtype:
    """By torch's own rules, in which a Tensor without dimensions counts less than the others."""
    tensors = [t for t in operands if isinstance(t, Tensor)]
    if len({t.dtype for t in tensors}) == 1:
        return tensors[0].dtype
    empty = [torch.empty((0,) * t.dim(), dtype=t.dtype, device="meta") for t in tensors]
    return TORCHS.clamp(*empty).dtype  # of two or three


def describe(
    function: str, through: str, operator: Operator, operands: Operands, kwargs: dict[str, Any]
) -> Call:
    """The facts that decide how a call differentiates."""
    x, lo, hi = operands
    are = isinstance(lo, Tensor), isinstance(hi, Tensor)
    with unseen():
        dtype = dtype_of_result(operands)
        with escaped():
            bits = None if any(are) else of_bounds(dtype, lo, hi)
    differentiated: Any = tuple(isinstance(v, Tensor) and is_recorded_here([v]) for v in operands)
    gradient = kwargs.get("gradient", "min_norm")
    asked = {"gradient": CANONICAL.get(gradient, gradient)} if operator.is_ours else {}
    if kwargs.get("maximize"):
        asked["maximize"] = True
    return Call(
        function=function,
        through=through,
        operator=operator,
        keywords=tuple(asked.items()),
        tensors=are,
        differentiated=differentiated,
        has=(lo is not None, hi is not None),
        of_bounds=bits,
        dtype=dtype,
        device=x.device,
        pin=pin.current() if operator.follows_torch else None,
    )


def _note_bounds(site: Site, call: Call, operands: Operands) -> dict[str, float]:
    """Remembers the bounds of a call; returns those that are one finite number each."""
    numbers = [_number(v) for v in operands[1:]]
    site.remember_bounds(
        *(
            "" if v is None else "Tensor" if isinstance(v, Tensor) else f"{v:g}"
            for v in operands[1:]
        )
    )
    note_rounding(site, call.dtype, *numbers)
    pairs = zip(("min", "max"), numbers)
    return {side: v for side, v in pairs if v is not None and abs(v) < float("inf")}


def _number(bound: Any) -> float | None:
    """The bound, if it is one number for every element."""
    if isinstance(bound, Tensor):
        is_one = bound.numel() == 1 and not in_transform()
        return float(bound.detach()) if is_one else None
    return None if bound is None else float(bound)
