"""The counts of a call site.

For one element, the gradient of a clamp-like call depends only on where its input stands and on the
incoming gradient g. So a site keeps, for every possible position, how many elements stood there and
the sums of |g| and of g squared: a few kilobytes for any model. The report works out what each
convention would have done with them.
"""

import math
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from clampgrad import functional
from clampgrad._contract.table import CONVENTIONS, EXACT
from clampgrad._pin.first_pin import hold_during_fork
from clampgrad._pin.pin import pin
from clampgrad._tools.audit.answers import Answer, answer
from clampgrad._tools.audit.callers import Caller
from clampgrad._tools.audit.calls import PAIRS, Call, call
from clampgrad._tools.audit.positions import ABOVE_LO, examples, kind

# The rows of sums; each has a column for every position, times three: g > 0, g < 0 and g = 0.
COUNT, SIZE, SQUARE = range(3)
SIGNS = [0, 1, 0]  # which answer each of the three takes

PART = 1 << 17  # elements that are summed at a time
MOST_BOUNDS = 8  # pairs of bounds that a site remembers; a schedule may go through thousands


_adding = hold_during_fork(threading.RLock())  # several threads may call at one site


@contextmanager
def as_pinned(name: str | None) -> Iterator[None]:
    """A block under the pin of that name, where another one holds."""
    if name == pin.current():
        yield
        return
    gradient, _, maximize = (name or "").partition(", ")
    with pin(gradient or None, maximize=bool(maximize)):
        yield


class Key(NamedTuple):
    """The key of a site: two calls that differ in these have a row each."""

    caller: Caller
    function: str
    through: str
    gradient: str


class Variant:
    """The calls of a site that differentiate alike."""

    def __init__(self, call: Call) -> None:
        self.call = call
        # Calls, looked at or not: those that are counted, and those that backward runs again.
        self.passed = [0, 0]
        self.missed = 0  # those not looked at
        self.calls = 0
        self.counts = torch.zeros(256, dtype=torch.int64, device="cpu")
        self.sums = torch.zeros(3, 256, 3, dtype=torch.float64, device="cpu")
        # Gradients that are not finite, by position and sign.
        self.infinite = torch.zeros(256, 2, dtype=torch.int64, device="cpu")
        # The same, that the node before the call made of a 0, by its name.
        self.behind: Counter[str] = Counter()
        self.inside: Tensor | None = None
        self.records = any(call.differentiated)
        self._others: dict[str, Answer] = {}

    @cached_property
    def now(self) -> Answer | None:
        """The gradients that the call hands back, None if it records none."""
        if not self.records:
            return None
        call = self.call
        with as_pinned(call.pin):
            return answer(call, partial(call.operator.again, **dict(call.keywords)))

    def is_due(self, every: int, is_again: bool) -> bool:
        """Whether to examine this call; the first is always examined."""
        with _adding:
            self.passed[is_again] += 1
            is_due = self.passed[is_again] % every == 1 % every
            self.missed += not is_due
        return is_due

    def see(self, positions: Tensor, memory: int) -> int:
        """Counts one call; returns how much memory its map of elements takes from now on."""
        found = _histogram(positions, 256)
        with _adding:
            self.calls += 1
            self.counts += found
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
        """Adds the gradient that arrived for the result of one call."""
        g, positions = g.detach().flatten(), positions.flatten()
        found = _sums(positions, g)
        if not found.isfinite().all():
            finite = g.isfinite()
            where = positions[~finite].to(torch.int16).mul_(2).add_(g[~finite] < 0)
            infinite = _histogram(where, 512).view(256, 2)
            found = _sums(positions, g.where(finite, 0))  # the rest has no share in a norm
            with _adding:
                self.infinite += infinite
        with _adding:
            self.sums += found

    def infinite_where(self, here: Tensor) -> int:
        """How many gradients that are not finite arrived at some of the positions and signs."""
        return int(self.infinite[here].sum())

    def under(self, convention: str) -> Answer:
        """The gradients that the call would hand back under a convention."""
        if convention not in self._others:
            name = self.call.operator.name
            ours = getattr(functional, name)
            self._others[convention] = answer(
                self.call, partial(call, name, ours, gradient=convention)
            )
        return self._others[convention]

    def squared_norm(self, slope: Tensor, constant: Tensor) -> float:
        """The squared norm of the gradients that arrived, each taken through a function of |g|."""
        slope, constant = slope[:, SIGNS], constant[:, SIGNS]
        count, first, second = self.sums.unsqueeze(-1)
        squares = slope**2 * second + 2 * slope * constant * first + constant**2 * count
        return max(squares.sum().item(), 0.0)


class Site:
    """A place in the code that makes a call, with all variants of the
    call: the unit of a report."""

    def __init__(self, key: Key, is_of_backward: bool = False) -> None:
        self.key = key
        self.is_of_backward = is_of_backward  # whether backward was the first to come here
        self.variants: dict[Call, Variant] = {}
        self.bounds: dict[tuple[str, str], None] = {}  # as the program has them, in order
        self.hazards: dict[Any, Any] = {}  # kept for clampgrad._tools.audit.lint

    @property
    def follows_torch(self) -> bool:
        """Whether the installed release of torch decides the gradient."""
        return self.key.gradient == "torch" and all(c.operator.follows_torch for c in self.variants)

    def differentiated(self) -> list[Variant]:
        """The variants that recorded a gradient."""
        return [v for v in self.variants.values() if v.records]

    def heard(self) -> list[Variant]:
        """The variants for which gradients arrived."""
        return [v for v in self.variants.values() if v.sums[COUNT].any()]

    def remember_bounds(self, lo: str, hi: str) -> None:
        """Remembers a pair of bounds, if there is room for it."""
        if len(self.bounds) < MOST_BOUNDS:
            self.bounds[lo, hi] = None

    def counts(self) -> dict[str, int]:
        """How many elements stood at each kind of position."""
        kinds = dict.fromkeys(("nan", "at_bound", "inside", "beyond"), 0)
        for variant in self.variants.values():
            for position, example in examples(*variant.call.has).items():
                kinds[kind(*example)] += int(variant.counts[position])
        return kinds

    def dead(self) -> int | None:
        """How many elements were never inside their bounds; None if
        shapes changed or memory ran out."""
        maps = [v.inside for v in self.variants.values() if v.calls]
        if not maps or any(m is None or m.shape != maps[0].shape for m in maps):  # type: ignore[union-attr]
            return None
        inside = torch.stack([m.cpu() for m in maps]).any(0)  # type: ignore[union-attr]
        return int((~inside).sum())

    def moved(self) -> dict[str, float | None]:
        """How far each convention would move the gradient, as the norm of
        the difference over the norm."""
        heard = self.heard()
        if not heard:
            return {}
        was = sum(v.squared_norm(*v.now) for v in heard if v.now)
        moved: dict[str, float | None] = {}
        pairs = any(v.call.operator.name in PAIRS for v in heard)
        for convention in EXACT if pairs else CONVENTIONS:
            far = sum(_apart(v, v.under(convention), v.now) for v in heard if v.now)
            moved[convention] = math.sqrt(far / was) if was else None if far else 0.0
        return moved

    def infinite_under(self, convention: str) -> int:
        """How many infinite or NaN gradients the convention would treat
        differently from the current one."""
        return sum(
            v.infinite_where((v.under(convention).slope != v.now.slope).any(-1))
            for v in self.variants.values()
            if v.now is not None and v.infinite.any()
        )

    def between(self, one: str, other: str) -> tuple[float, int]:
        """The relative norm of the difference between two conventions, and how many gradients have
        another sign; 0 is a sign of its own."""
        far = size = 0.0
        signs = 0
        for v in self.heard():
            a, b = v.under(one), v.under(other)
            far += _apart(v, a, b)
            size += max(v.squared_norm(*a), v.squared_norm(*b))
            differ = (a.slope.sign() != b.slope.sign()).sum(-1)
            signs += int((differ * v.sums[COUNT][:, :2]).sum())
        return math.sqrt(far / size) if size else 0.0, signs


def passing(answer: Answer) -> Tensor:
    """Whether a gradient is passed on, by position and sign."""
    return (answer.slope != 0).any(-1)


def _apart(variant: Variant, a: Answer, b: Answer) -> float:
    return variant.squared_norm(*(p - q for p, q in zip(a, b)))


def _sums(positions: Tensor, g: Tensor) -> Tensor:
    """The count of elements, the sum of |g| and the sum of g squared,
    for every position and sign."""
    # On a CPU, what is made on the way (20 bytes per element) stays in the cache.
    part = PART if g.device.type == "cpu" else max(g.numel(), 1)
    parts = zip(positions.split(part), g.split(part), strict=True)
    return sum(
        (_sums_of_part(*p) for p in parts),
        torch.zeros(3, 256, 3, dtype=torch.float64, device="cpu"),
    )


def _sums_of_part(positions: Tensor, g: Tensor) -> Tensor:
    index = positions.to(torch.int16).mul_(3).add_(g < 0).add_(g == 0, alpha=2)
    size = g.abs().double()
    weights = (None, size, size.square())
    return torch.stack([_histogram(index, 768, w).double() for w in weights]).view(3, 256, 3)


def _histogram(index: Tensor, length: int, weights: Tensor | None = None) -> Tensor:
    if index.is_cuda and torch.are_deterministic_algorithms_enabled():
        # There it has no deterministic kernel, and would raise.
        index, weights = index.cpu(), None if weights is None else weights.cpu()
    return torch.bincount(index.flatten(), weights, length).cpu()
