"""Does the convention matter to my model? Every clamp-like call, counted, with what it would change.

What the gradient of such a call is depends, for one element, on where its input stands and on the
incoming gradient g alone. So a site keeps, for every position that there is, how many elements stood
there and the sums of |g| and of g squared: a few kilobytes, whatever the model. What each convention
would have done with them is worked out when the report is read.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from itertools import product
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import clampgrad
from clampgrad._optional import need
from clampgrad._pin import pin
from clampgrad._table import CONVENTIONS, EXACT

if TYPE_CHECKING:
    from pathlib import Path

Bounds: TypeAlias = tuple[Any, Any, Any]  # input, lower bound or None, upper bound or None

PAIRS = ("maximum", "minimum", "fmax", "fmin")


# ---- Which calls are looked at -------------------------------------------------------------------


class Operator(NamedTuple):
    name: str  # of clampgrad's function that has the same forward
    read: Callable[
        ..., Any
    ]  # input and bounds out of its arguments; None if it is something else after all
    again: Callable[..., Tensor]  # the function itself, of input, lower and upper bound


def _clamp(input: Tensor, min: Any = None, max: Any = None, **_: Any) -> Bounds:
    return input, min, max


def _clamp_max(input: Tensor, max: Any, **_: Any) -> Bounds:
    return input, None, max


def _lower(input: Tensor, other: Any = None, **_: Any) -> Bounds | None:
    return (input, other, None) if isinstance(other, Tensor) else None  # torch.max(x, dim)


def _upper(input: Tensor, other: Any = None, **_: Any) -> Bounds | None:
    return (input, None, other) if isinstance(other, Tensor) else None


def _hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, *_: Any, **__: Any
) -> Bounds:
    return input, min_val, max_val


def _operators() -> dict[Any, Operator]:
    found: dict[Any, Operator] = {}

    def add(spaces: tuple[Any, ...], name: str, operator: Operator) -> None:
        for space, suffix in product(spaces, ("", "_")):
            if hasattr(space, name + suffix):
                found[getattr(space, name + suffix)] = operator

    readers: dict[str, Any] = dict(clamp=_clamp, clamp_min=_clamp, clamp_max=_clamp_max)
    readers |= dict(maximum=_lower, fmax=_lower, minimum=_upper, fmin=_upper)
    for name, read in readers.items():
        for library, spaces in {torch: (torch, Tensor), clampgrad: (clampgrad,)}.items():
            function = getattr(library, name)
            add(spaces, name, Operator(name, read, partial(_call, name, function)))
            other = {"clamp": "clip", "maximum": "max", "minimum": "min"}.get(name)
            if other and hasattr(library, other):
                add(spaces, other, found[function])
    relu = Operator("clamp_min", lambda input, *_, **__: (input, 0, None), lambda x, *_: F.relu(x))
    add((torch, Tensor, F), "relu", relu)
    add((F,), "relu6", Operator("clamp", lambda input, *_, **__: (input, 0, 6), F.hardtanh))
    add((F,), "hardtanh", Operator("clamp", _hardtanh, F.hardtanh))
    return found


def _call(name: str, function: Any, x: Tensor, lo: Any, hi: Any, **keywords: Any) -> Tensor:
    """A function of the clamp family, given both bounds."""
    return (
        function(x, lo, hi, **keywords)
        if name == "clamp"
        else function(x, hi if lo is None else lo, **keywords)
    )


# ---- Where an element stands ---------------------------------------------------------------------

# The bits of a position. The last three depend on the bounds alone.
ABOVE_LO, AT_LO, ABOVE_HI, AT_HI, NAN, EMPTY, SINGLE, NO_BOUND = (1 << i for i in range(8))
OF_BOUNDS = EMPTY | SINGLE | NO_BOUND


def _positions(x: Tensor, lo: Tensor | None, hi: Tensor | None) -> Tensor:
    """One byte an element of the result: how it compares with its bounds."""
    masks = [(x.isnan(), NAN)]
    if lo is not None:
        masks += [(x > lo, ABOVE_LO), (x == lo, AT_LO), (lo.isnan(), NO_BOUND)]
    if hi is not None:
        masks += [(x > hi, ABOVE_HI), (x == hi, AT_HI)]
        masks += [(hi.isnan() if lo is None else hi.isnan() & ~lo.isnan(), NO_BOUND)]
    if lo is not None and hi is not None:
        masks += [(lo > hi, EMPTY), (lo == hi, SINGLE)]
    shape = torch.broadcast_shapes(*(mask.shape for mask, _ in masks))
    positions = torch.zeros(shape, dtype=torch.uint8, device=x.device)
    for mask, bit in masks:
        if mask.dim() or mask:  # most of what is said of numbers is False
            positions.add_(mask.view(torch.uint8), alpha=bit)
    return positions


@lru_cache
def _examples(has_lo: bool, has_hi: bool) -> dict[int, Bounds]:
    """An element for every position that there is."""
    bounds = {(0.0 if has_lo else None, hi if has_hi else None) for hi in (2.0, 0.0, -2.0)}
    bounds.add((torch.nan if has_lo else None, torch.nan if has_hi else None))
    found: dict[int, Bounds] = {}
    for (lo, hi), x in product(sorted(bounds, key=str), (-3.0, -2, -1, 0, 1, 2, 3, torch.nan)):
        tensors = (None if v is None else torch.tensor(v) for v in (x, lo, hi))
        found.setdefault(int(_positions(*tensors)), (x, lo, hi))
    return found


def _kind(x: float, lo: float | None, hi: float | None) -> str:
    lo, hi = -math.inf if lo is None else lo, math.inf if hi is None else hi
    if any(v != v for v in (x, lo, hi)):
        return "nan"
    if lo <= hi and x in (lo, hi):
        return "at_bound"
    return "inside" if lo < x < hi else "beyond"


# ---- What a function answers ---------------------------------------------------------------------


class Answer(NamedTuple):
    """The gradient of the input and of each bound, for a positive and for a negative g, as slope
    and constant of a function of |g|; [position, sign, argument] in float64."""

    slope: Tensor
    constant: Tensor


class Call(NamedTuple):
    """What decides how a call differentiates, but for the values."""

    function: str
    operator: Operator
    keywords: tuple[tuple[str, Any], ...]  # gradient and maximize, of our own functions
    tensors: tuple[bool, bool]  # which of the bounds are Tensors
    differentiated: tuple[bool, bool, bool]
    has: tuple[bool, bool]
    of_bounds: int | None  # those bits of the position, where both are numbers
    dtype: torch.dtype
    device: torch.device
    pin: str | None


def _answer(call: Call, function: Callable[..., Tensor]) -> Answer:
    """Asks a function for its gradient at every position."""
    answers = torch.zeros(2, 256, 2, 3, dtype=torch.float64)
    examples = {
        position: example
        for position, example in _examples(*call.has).items()
        if call.of_bounds in (None, position & OF_BOUNDS)
    }
    # Nobody's hooks and modes are to see these calls: a checkpoint counts what is saved.
    ours = torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)
    unseen = torch._C.DisableTorchFunction()
    with torch.inference_mode(False), torch.enable_grad(), ours, unseen:
        for bounds in dict.fromkeys(str(e[1:]) for e in examples.values()):
            chosen = {p: e for p, e in examples.items() if str(e[1:]) == bounds}
            gradients = _ask(call, function, list(chosen.values()))
            answers[:, list(chosen)] = gradients
    return Answer(*answers)


def _ask(call: Call, function: Callable[..., Tensor], elements: list[Bounds]) -> Tensor:
    """[slope or constant, element, sign, argument] of elements with the same bounds."""

    def leaf(values: list[Any], which: int) -> Tensor:
        tensor = torch.tensor(values, dtype=call.dtype, device=call.device)
        return tensor.requires_grad_(call.differentiated[which])

    arguments: list[Any] = [leaf([e[0] for e in elements], 0)]
    for i, is_tensor in enumerate(call.tensors, 1):
        bound = elements[0][i]
        arguments.append(leaf([bound] * len(elements), i) if is_tensor else bound)
    wanted = [i for i in range(3) if call.differentiated[i]]
    result = function(*arguments)
    answers = torch.zeros(2, len(elements), 2, 3, dtype=torch.float64)
    for sign, unit in enumerate((1.0, -1.0)):
        # Of g = 1 and g = 2: what doubles is in proportion to g, what stays does not depend on it.
        one, two = (
            torch.autograd.grad(
                result,
                [arguments[i] for i in wanted],
                torch.full_like(result, unit * size),
                retain_graph=True,
                allow_unused=True,
                materialize_grads=True,
            )
            for size in (1, 2)
        )
        for i, a, b in zip(wanted, one, two):
            a, b = a.double().cpu(), b.double().cpu()
            answers[:, :, sign, i] = torch.stack([b - a, 2 * a - b])
    return answers


# ---- Sites ---------------------------------------------------------------------------------------


@dataclass
class Finding:
    """What was seen at one call site. `moved` is empty where nothing was differentiated."""

    function: str
    gradient: str  # torch's own ("torch"), the pin's, or the one that was asked for
    file: str
    line: int
    module: str  # its path from the module that was called, "" outside of modules
    calls: int  # those that were looked at, as in all that follows
    elements: int
    at_bound: int
    beyond: int
    nan: int
    dead: int | None  # never inside in any call; None if shapes changed or there were too many
    moved: dict[str, float | None]  # None: from a gradient of 0 to one that is not

    def weight(self) -> tuple[float, ...]:
        """What matters comes first: an exact convention that moves the gradient, then ties."""
        moved = [math.inf if v is None else v for k, v in self.moved.items() if k in EXACT]
        size = max(self.elements, 1)
        return max(moved, default=-1.0), self.at_bound / size, self.nan / size, self.beyond / size


class _Site:
    def __init__(self, call: Call, file: str, line: int, module: str) -> None:
        self.call, self.file, self.line, self.module = call, file, line, module
        self.passed = 0  # calls, looked at or not
        self.calls = 0
        self.counts = torch.zeros(256, dtype=torch.int64)
        self.sums = torch.zeros(3, 512, dtype=torch.float64)  # of 1, |g|, g * g
        self.inside: Tensor | None = None
        self.now = None
        if any(call.differentiated):
            function = partial(call.operator.again, **dict(call.keywords))
            self.now = _answer(call, function)

    def is_due(self, every: int) -> bool:
        """Whether the call that is being made is one to look at; the first is."""
        self.passed += 1
        return self.passed % every == 1 % every

    def see(self, positions: Tensor, memory: int) -> int:
        """Counts one call; returns how much memory its map of elements takes from now on."""
        self.calls += 1
        self.counts += torch.bincount(positions.flatten(), minlength=256).cpu()
        inside = positions == (ABOVE_LO if self.call.has[0] else 0)
        if self.calls == 1:
            if positions.numel() <= memory:
                self.inside = inside
                return positions.numel()
        elif self.inside is not None and self.inside.shape == inside.shape:
            self.inside |= inside
        else:
            self.inside = None
        return 0

    def hear(self, positions: Tensor, g: Tensor) -> None:
        """The gradient that arrives for the result of one call."""
        g = g.detach().nan_to_num(0, 0, 0).flatten()  # what is not finite has no share in a norm
        index = positions.flatten().to(torch.int16).mul_(2).add_(g < 0)
        size = g.abs().double()
        self.sums[0] += torch.bincount(index, minlength=512).cpu()
        self.sums[1] += torch.bincount(index, size, 512).cpu()
        self.sums[2] += torch.bincount(index, size.square_(), 512).cpu()

    def moved(self) -> dict[str, float | None]:
        count, first, second = (s.view(256, 2, 1) for s in self.sums)
        if self.now is None or not self.sums[0].any():
            return {}

        def norm(slope: Tensor, constant: Tensor) -> float:
            squares = slope**2 * second + 2 * slope * constant * first + constant**2 * count
            return math.sqrt(max(squares.sum().item(), 0.0))

        was = norm(*self.now)
        moved: dict[str, float | None] = {}
        name = self.call.operator.name
        ours = getattr(clampgrad, name)
        for convention in EXACT if name in PAIRS else CONVENTIONS:
            other = _answer(self.call, partial(_call, name, ours, gradient=convention))
            far = norm(*(a - b for a, b in zip(other, self.now)))
            moved[convention] = far / was if was else None if far else 0.0
        return moved

    def finding(self) -> Finding:
        kinds = dict.fromkeys(("nan", "at_bound", "inside", "beyond"), 0)
        for position, example in _examples(*self.call.has).items():
            kinds[_kind(*example)] += int(self.counts[position])
        return Finding(
            function=self.call.function,
            gradient=dict(self.call.keywords).get("gradient") or self.call.pin or "torch",
            file=self.file,
            line=self.line,
            module=self.module,
            calls=self.calls,
            elements=int(self.counts.sum()),
            **{kind: count for kind, count in kinds.items() if kind != "inside"},
            dead=None if self.inside is None else int((~self.inside).sum()),
            moved=self.moved(),
        )


# ---- Who calls -----------------------------------------------------------------------------------

LIBRARIES = tuple(os.path.dirname(str(p.__file__)) + os.sep for p in (torch, clampgrad))
CALL_MODULE = nn.Module._call_impl.__code__

_paths: WeakKeyDictionary[nn.Module, dict[int, str]] = WeakKeyDictionary()


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _caller() -> tuple[str, int, str]:
    """File and line outside of torch, and the path of the module, of the call that is being made."""
    place, modules = None, []
    for frame in _frames():
        code = frame.f_code
        if code is CALL_MODULE:
            modules.append(frame.f_locals["self"])
        elif place is None and not code.co_filename.startswith(LIBRARIES):
            place = code.co_filename, frame.f_lineno
    return (*(place or ("?", 0)), _path(modules[-1], modules[0]) if modules else "")


def _path(root: nn.Module, module: nn.Module) -> str:
    names = _paths.get(root)
    if names is None or id(module) not in names:
        names = {id(m): name for name, m in root.named_modules()}
        _paths[root] = names
    name = names.get(id(module), "?")
    return f"{type(root).__name__}.{name}" if name else type(root).__name__


# ---- The report ----------------------------------------------------------------------------------


class Report:
    """What an audit saw. Reading it is possible at any time, also while the audit goes on.

    Iterating yields a `Finding` for every call site, what matters most first; `str` is a table.
    """

    def __init__(self) -> None:
        self._sites: dict[Any, _Site] = {}
        self.skipped: Counter[str] = Counter()  # calls that were not looked at, by reason

    def __iter__(self) -> Iterator[Finding]:
        findings = [site.finding() for site in self._sites.values()]
        return iter(sorted(findings, key=Finding.weight, reverse=True))

    def __len__(self) -> int:
        return len(self._sites)

    def __str__(self) -> str:
        rows = [COLUMNS, *map(cells, self)]
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = [
            "  ".join(
                cell.ljust(width) if name in LEFT else cell.rjust(width)
                for name, cell, width in zip(COLUMNS, row, widths)
            ).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, self.note()])

    def note(self) -> str:
        """What the reader of a table has to know."""
        text = (
            "Columns of conventions: how far the gradient that the call hands back would move, norm "
            "of the difference over norm; what becomes of it further back is not followed."
        )
        skipped = ", ".join(f"{count} of {reason}" for reason, count in self.skipped.items())
        return f"{text} Calls not looked at: {skipped}." if skipped else text

    def as_data(self) -> dict[str, Any]:
        """Everything, in what JSON can say."""
        findings = [asdict(finding) for finding in self]
        return {"torch": torch.__version__, "sites": findings, "skipped": dict(self.skipped)}

    def save(self, path: str | Path) -> None:
        """Writes `as_data` as JSON."""
        with open(path, "w") as file:
            json.dump(self.as_data(), file, indent=1, allow_nan=False)
            file.write("\n")

    def picture(self, path: str | Path, most: int = 12) -> None:
        """Draws where elements stand and how far gradients would move, one bar a call site."""
        findings = list(self)[:most][::-1]
        figure = need("matplotlib.figure").Figure(
            figsize=(10, 1.6 + 0.32 * len(findings)), layout="constrained"
        )
        left, right = figure.subplots(1, 2, sharey=True)
        names = [f"{f.function}  {f.module or where(f)}" for f in findings]
        start = [0.0] * len(findings)
        for kind, colour in {"at_bound": "tab:red", "beyond": "0.7", "nan": "black"}.items():
            shares = [getattr(f, kind) / max(f.elements, 1) for f in findings]
            left.barh(
                range(len(names)), shares, left=start, color=colour, label=kind.replace("_", " ")
            )
            start = [a + b for a, b in zip(start, shares)]
        left.set(xlabel="share of the elements", xlim=(0, 1), yticks=range(len(names)))
        left.set_yticklabels(names, fontsize=8)
        for convention, marker in zip(EXACT, "os^D"):
            far = [f.moved.get(convention) for f in findings]
            right.plot(
                *([math.nan if v is None else v for v in far], range(len(names))),
                *(marker,),
                label=convention,
                alpha=0.7,
            )
        right.set(xlabel="how far the gradient would move")
        right.grid(alpha=0.25)
        for panel in (left, right):
            panel.legend(fontsize=8, frameon=False, loc="lower right")
        figure.savefig(path, dpi=100)


LEFT = ("call", "where", "module", "gradient")
COUNTS = ("elements", "at bound", "beyond", "NaN", "dead")
COLUMNS = (*LEFT, *COUNTS, *CONVENTIONS)


def where(finding: Finding) -> str:
    return f"{os.path.basename(finding.file)}:{finding.line}"


def cells(finding: Finding) -> tuple[str, ...]:
    """A finding as text, in the order of COLUMNS."""

    def share(count: int | None) -> str:
        return "" if count is None else f"{count / max(finding.elements, 1):.2%}"

    def moved(convention: str) -> str:
        value = finding.moved.get(convention, "")
        return value if isinstance(value, str) else "from 0" if value is None else f"{value:.2g}"

    dead = None if finding.dead is None else finding.dead * finding.calls
    counts = (finding.at_bound, finding.beyond, finding.nan, dead)
    return (
        *(finding.function, where(finding), finding.module, finding.gradient),
        *(f"{finding.elements:,}", *map(share, counts), *map(moved, CONVENTIONS)),
    )


# ---- The audit -----------------------------------------------------------------------------------


class audit(TorchFunctionMode):
    """Looks at every clamp-like call in a block, and at the gradients that come back to it.

    Around one training step or a few, forward and backward::

        >>> with clampgrad.audit() as report:
        ...     loss(model(x), y).backward()
        >>> print(report)

    What counts: ``clamp``, ``clip``, ``clamp_min``, ``clamp_max``, ``maximum``, ``minimum``, ``fmax``,
    ``fmin``, ``max`` and ``min`` of two Tensors, their methods and in-place forms, ``relu``, ``relu6``,
    ``hardtanh`` and their modules, and clampgrad's own, on Tensors of floating-point dtypes.

    For every call site (file, line, path of the module) the report has: elements; how many are exactly
    at a bound, beyond one, NaN; how many were never inside in any call (dead); and how far the
    gradient that the call hands back would move under each convention, as the norm of the difference
    over the norm, from the gradients that did arrive. That is local: what becomes of the
    difference further back in the model is not followed.

    Calls from Python in the thread that entered the block are seen. Calls from C++, from TorchScript,
    of Tensor subclasses and inside ``torch.func`` transforms are not; the report counts those it
    knows of. Code that torch.compile made runs uncompiled meanwhile. The second forward of
    a checkpoint is not counted again.

    Args:
        memory: bytes for finding dead elements, at one an element; call sites beyond that have
            ``dead`` None. From forward to backward, a byte an element comes on top.
        every: looks at one in so many calls of each site, the first among them. Looking at a call
            costs a few times what the call does; a long run needs few of them.

    Raises:
        ValueError: if `every` is less than 1.
    """

    def __init__(self, memory: int = 1 << 28, every: int = 1) -> None:
        super().__init__()
        if every < 1:
            raise ValueError(f"audit: every must be at least 1, not {every}")
        self._memory, self._every = memory, every
        self._report = Report()
        self._operators = _operators()

    def __enter__(self) -> Report:
        self._stance = torch.compiler.set_stance("force_eager")
        super().__enter__()
        return self._report

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        self._stance.__exit__(*exception)

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        operator = self._operators.get(function)
        # In backward, a checkpoint runs its forward again.
        bounds = operator.read(*args, **kwargs) if operator and not _in_backward() else None
        if operator is None or bounds is None or not bounds[0].is_floating_point():
            return function(*args, **kwargs)
        reason = _unreadable(bounds)
        if reason:
            self._report.skipped[reason] += 1
            return function(*args, **kwargs)
        # Before the call, which may be in place.
        site = self._site(function, operator, bounds, kwargs)
        if not site.is_due(self._every):
            return function(*args, **kwargs)
        positions = _positions(*_compared(bounds, site.call.dtype))
        self._memory -= site.see(positions, self._memory)
        result = function(*args, **kwargs)
        if site.now is not None and result.requires_grad:
            result.register_hook(lambda g: site.hear(positions, g))
        return result

    def _site(
        self, function: Any, operator: Operator, bounds: Bounds, kwargs: dict[str, Any]
    ) -> _Site:
        x, lo, hi = bounds
        tensors = [t for t in bounds if isinstance(t, Tensor)]
        dtype = x.dtype
        for tensor in tensors[1:]:
            dtype = torch.promote_types(dtype, torch.result_type(x, tensor))
        are = isinstance(lo, Tensor), isinstance(hi, Tensor)
        constant = None if any(are) else _of_bounds(dtype, lo, hi)
        requires: Any = tuple(
            isinstance(v, Tensor) and v.requires_grad and torch.is_grad_enabled() for v in bounds
        )
        ours = getattr(function, "__module__", "") == "clampgrad.functional"
        name = getattr(function, "__name__", str(function))
        asked = {"gradient": kwargs.get("gradient", "min_norm")} if ours else {}
        if kwargs.get("maximize"):
            asked["maximize"] = True
        call = Call(
            function=f"{'clampgrad.' if ours else ''}{name}",
            operator=operator,
            keywords=tuple(asked.items()),
            tensors=are,
            differentiated=requires,
            has=(lo is not None, hi is not None),
            of_bounds=constant,
            dtype=dtype,
            device=x.device,
            pin=None if ours else pin.current(),
        )
        key = (call, *_caller())
        site = self._report._sites.get(key)
        if site is None:
            site = self._report._sites[key] = _Site(*key)
        return site


def _compared(bounds: Bounds, dtype: torch.dtype) -> Iterator[Tensor | None]:
    """As the kernel compares them: in the dtype of the result."""
    return (None if v is None else torch.as_tensor(v).detach().to(dtype) for v in bounds)


@lru_cache(1024)
def _of_bounds(dtype: torch.dtype, lo: float | None, hi: float | None) -> int:
    """What two numbers alone say of a position."""
    return int(_positions(*_compared((torch.zeros(1), lo, hi), dtype))) & OF_BOUNDS


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1


def _unreadable(bounds: Bounds) -> str | None:
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "torch.func"
    for value in bounds:
        if isinstance(value, Tensor) and type(value) not in (Tensor, nn.Parameter, nn.Buffer):
            return type(value).__name__
    return None
