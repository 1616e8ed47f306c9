"""The audit itself: a mode that sees every call of a torch function in its thread."""

import logging
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from clampgrad._contract.table import CANONICAL
from clampgrad._pin.pin import pin
from clampgrad._tools.audit.callers import caller
from clampgrad._tools.audit.calls import Call, Operands, Operator, operators, unreadable
from clampgrad._tools.audit.consumers import Consumers, Side
from clampgrad._tools.audit.lint import note_rounding
from clampgrad._tools.audit.positions import compared, of_bounds, positions, rounded
from clampgrad._tools.audit.report import Report
from clampgrad._tools.audit.sites import Key, Site, Variant
from clampgrad._torch.surroundings import in_backward, unseen
from clampgrad._torch.torchs_functions import TORCHS

logger = logging.getLogger("clampgrad")
# torch's own operators that call functions; some run only compiled.
CALL_FUNCTIONS = ("cond", "map_impl", "while_loop", "scan")


# Bytes for finding dead elements, one per element; for call sites beyond that, `dead` is None.
MEMORY = 1 << 28


class audit(TorchFunctionMode):
    """Examines every call of clamp and related functions in a block, and
    the gradients that arrive there.

    Around one training step or a few, forward and backward::

        >>> with clampgrad.audit() as report:
        ...     loss(model(x), y).backward()
        >>> print(report)

    Covered are ``clamp``, ``clip``, ``clamp_min``, ``clamp_max``, ``maximum``, ``minimum``,
    ``fmax``, ``fmin``, ``max`` and ``min`` of two Tensors, their methods and in-place forms,
    ``relu``, ``relu6``, ``hardtanh`` and their modules, and the functions of clampgrad, on
    Tensors of floating-point dtypes.

    For every call site (file, line, path of the module) the report has the number of elements; how
    many are exactly at a bound, beyond one, or NaN; how many were never inside their bounds
    (dead); how far the gradient that the call returns would move under each convention, as the
    norm of the difference over the norm, computed from the gradients that arrived; and warnings,
    which the page "Audit a program" of the documentation describes.

    The effect of a gradient further back in the model is not followed. The audit sees calls from
    Python in the thread that entered the block. It does not see calls from C++ or TorchScript,
    inside functions of ``torch.nn.functional``, of Tensor subclasses, or inside ``torch.func``
    transforms; the report counts those it knows of. Functions compiled by ``torch.compile`` run
    uncompiled during an audit. The second forward of a checkpoint is not counted again.

    Args:
        every: examine one in ``every`` calls of each call site, including the first. Examining a
            call costs several times as much as the call.

    Raises:
        ValueError: `every` is less than 1.
        RuntimeError: torch is older than 2.6.
    """

    def __init__(self, every: int = 1) -> None:
        super().__init__()
        if every < 1:
            raise ValueError(f"audit: every must be at least 1, not {every}")
        if not hasattr(torch.compiler, "set_stance"):
            raise RuntimeError(f"audit: needs torch 2.6 or later, and this is {torch.__version__}")
        self._memory, self._every = MEMORY, every
        self.report = Report(every)
        self._operators = operators()
        self._consumers = Consumers()

    def __enter__(self) -> Report:
        self._stance = torch.compiler.set_stance("force_eager")
        super().__enter__()
        return self.report

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        self._stance.__exit__(*exception)

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "")
        if name in CALL_FUNCTIONS and getattr(function, "namespace", "") == "higher_order":
            self.report.skipped[f"inside {name.removesuffix('_impl')}"] += 1
            # Dynamo takes none of the empty keywords that torch itself adds
            # (mutated_arg_indices, from 2.15 on).
            kwargs = {key: value for key, value in kwargs.items() if value}
            with torch.compiler.set_stance("default"):
                return torch.compile(function, backend="eager", fullgraph=True)(*args, **kwargs)
        operator = self._operators.get(function)
        look = self._look if operator else self._consumers.follow
        # Before the call, which may be in place. In backward, a checkpoint runs its forward again.
        then = None if in_backward() else self._safely(look, function, args, kwargs)
        result = function(*args, **kwargs)
        if then is not None:
            self._safely(then, result)
        return result

    def _safely(self, look: Any, *args: Any) -> Any:
        """If the audit itself fails, the program goes on, and the report says so."""
        try:
            return look(*args)
        except Exception as error:
            self.report.skipped[f"{type(error).__name__} in the audit"] += 1
            logger.debug("audit: a call was not looked at", exc_info=error)
            return None

    def _look(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Counts a call; returns what to do with its result."""
        operator = self._operators[function]
        try:
            operands = operator.read(*args, **kwargs)
        except TypeError:
            return None  # wrong arguments: the function itself will say so
        if operands is None:
            return None  # another function of that name
        x = operands[0]
        if not isinstance(x, Tensor) or not any(map(_is_floating_point, operands)):
            return None
        reason = unreadable(operands)
        if reason:
            self.report.skipped[reason] += 1
            return None
        if not x.numel():
            return None  # nothing to count
        with unseen():
            operands = with_numbers(function, operands)
            site, variant = self._site(function, operator, operands, kwargs)
            if not variant.is_due(self._every):
                return None
            where = positions(*compared(operands, variant.call.dtype))
            self._memory -= variant.see(where, self._memory)
            sides = _note_bounds(site, variant.call, operands)
            known = [((site, side), v) for side, v in sides.items()]
            if all(v is None or _number(v) is not None for v in operands[1:]):
                inf = float("inf")
                known += self._consumers.between(x, sides.get("min", -inf), sides.get("max", inf))
        # Before an in-place call gives x a node of its own.
        return partial(self._listen, variant, where, known, x.grad_fn, x.output_nr)

    def _listen(
        self,
        variant: Variant,
        where: Tensor,
        sides: list[tuple[Side, float]],
        before: Any,
        of_before: int,
        result: Any,
    ) -> None:
        """Follows the bounds of a result, and waits for its gradient, and for
        that of what made the input."""
        if not result.is_inference():
            with unseen():
                known = [(side, rounded(v, result.dtype)) for side, v in sides]
            self._consumers.begin(result, known)
        if variant.now is None or result.grad_fn is None:
            return

        def arrived(gradients: tuple[Any, ...]) -> None:
            self._safely(self._hear, variant, where, gradients[output])

        output = result.output_nr
        result.grad_fn.register_prehook(arrived)
        if before is not None:
            before.register_hook(
                lambda made, given: self._safely(
                    self._hear_behind, variant, before.name(), made, given[of_before]
                )
            )

    def _hear_behind(
        self, variant: Variant, node: str, made: tuple[Tensor | None, ...], given: Tensor | None
    ) -> None:
        """Counts what a node makes of the 0 that it is given, where it works element by element."""
        if given is None or unreadable((given, *made)):
            return
        with unseen():
            alike = [g for g in made if g is not None and g.shape == given.shape]
            variant.behind[node] += sum(int((~g.isfinite() & (given == 0)).sum()) for g in alike)

    def _hear(self, variant: Variant, where: Tensor, g: Tensor | None) -> None:
        if g is None:
            return
        reason = unreadable((g,))
        if reason:
            self.report.skipped[reason] += 1
            return
        with unseen():
            variant.hear(where, g)

    def _site(
        self, function: Any, operator: Operator, operands: Operands, kwargs: dict[str, Any]
    ) -> tuple[Site, Variant]:
        call = describe(function, operator, operands, kwargs)
        key = Key(caller(), call.function, call.gradient)
        site = self.report._sites.get(key)
        if site is None:
            site = self.report._sites[key] = Site(key)
        variant = site.variants.get(call)
        if variant is None:
            variant = site.variants[call] = Variant(call)
        return site, variant


def with_numbers(function: Any, operands: Operands) -> Operands:
    """The operands, with a number for a bound without dimensions that torch reads as one: of
    hardtanh, and beside a number."""
    x, *bounds = operands
    if getattr(function, "__module__", "") == "clampgrad.functional":
        return operands  # where a Tensor is a Tensor
    numbers = any(b is not None and not isinstance(b, Tensor) for b in bounds)
    if numbers or getattr(function, "__name__", "") == "hardtanh":
        bounds = [b.item() if isinstance(b, Tensor) and not b.dim() else b for b in bounds]
    return (x, *bounds)


def dtype_of_result(operands: Operands) -> torch.dtype:
    """By torch's own rules, in which a Tensor without dimensions counts less than the others."""
    tensors = [t for t in operands if isinstance(t, Tensor)]
    if len({t.dtype for t in tensors}) == 1:
        return tensors[0].dtype
    empty = [torch.empty((0,) * t.dim(), dtype=t.dtype, device="meta") for t in tensors]
    return TORCHS.clamp(*empty).dtype  # of two or three


def describe(function: Any, operator: Operator, operands: Operands, kwargs: dict[str, Any]) -> Call:
    """The facts that decide how a call differentiates."""
    x, lo, hi = operands
    dtype = dtype_of_result(operands)
    are = isinstance(lo, Tensor), isinstance(hi, Tensor)
    differentiated: Any = tuple(
        isinstance(v, Tensor) and v.requires_grad and torch.is_grad_enabled() for v in operands
    )
    ours = getattr(function, "__module__", "") == "clampgrad.functional"
    name = getattr(function, "__name__", str(function))
    gradient = kwargs.get("gradient", "min_norm")
    asked = {"gradient": CANONICAL.get(gradient, gradient)} if ours else {}
    if kwargs.get("maximize"):
        asked["maximize"] = True
    return Call(
        function=f"{'clampgrad.' if ours else ''}{name}",
        operator=operator,
        keywords=tuple(asked.items()),
        tensors=are,
        differentiated=differentiated,
        has=(lo is not None, hi is not None),
        of_bounds=None if any(are) else of_bounds(dtype, lo, hi),
        dtype=dtype,
        device=x.device,
        pin=None if ours or operator.own else pin.current(),
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


def _is_floating_point(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _number(bound: Any) -> float | None:
    """The bound, if it is one number for every element."""
    if isinstance(bound, Tensor):
        return float(bound.detach()) if bound.numel() == 1 else None
    return None if bound is None else float(bound)
