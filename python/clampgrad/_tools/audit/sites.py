"""The counts of a call site.

For one element, the gradient of a clamp-like call depends only on its position and on the incoming
gradient g. So a site keeps, for every possible position, how many elements were there and the sums
of |g| and of g squared: a few kilobytes for any model. From these, the report computes what each
convention would have returned.
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
from clampgrad._tools.audit.callers import Caller
from clampgrad._tools.audit.calls import Call, call_with_bounds
from clampgrad._tools.audit.positions import ABOVE_LO, example_elements, kind_of_position
from clampgrad._tools.audit.responses import GradientResponse, probe_gradients
from clampgrad._torch.torchs_functions import EXTREMA

# The rows of sums; each has a column for every position, times three: g > 0, g < 0 and g = 0.
COUNT, SIZE, SQUARE = range(3)
SIGNS = [0, 1, 0]  # the sign in a response for each of the three

PART_SIZE = 1 << 17  # elements that are summed at a time
LARGEST = 1e150  # a larger gradient counts as this one, so that the sum of the squares is finite
MOST_BOUNDS = 8  # pairs of bounds that a site remembers; a schedule may go through thousands


_count_lock = hold_during_fork(threading.RLock())  # several threads may call at one site


@contextmanager
def use_pin(name: str | None) -> Iterator[None]:
    """Pins the convention of that name, unless it is pinned."""
    if name == pin.current():
        yield
        return
    gradient, _, maximize = (name or "").partition(", ")
    with pin(gradient or None, maximize=bool(maximize)):
        yield


class SiteKey(NamedTuple):
    """Identifies a site: calls that differ in one of these belong to different sites."""

    caller: Caller
    function: str
    through: str
    gradient: str


class Variant:
    """The calls of a site that differentiate alike."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.has_returned = False  # whether a call was more than an attempt, which raised an error
        self.returned = 0  # calls of the forward that returned
        # Calls that backward ran again, also one that it stopped by an error, as a checkpoint does
        # with the last.
        self.repeated = 0
        # Calls that returned: those that were not examined, and those that are counted.
        self.missed = self.calls = 0
        self.counts = torch.zeros(256, dtype=torch.int64, device="cpu")
        self.sums = torch.zeros(3, 256, 3, dtype=torch.float64, device="cpu")
        # Gradients that are not finite, by position and sign.
        self.infinite = torch.zeros(256, 2, dtype=torch.int64, device="cpu")
        # Those that the node upstream of the call made of a 0, by its name.
        self.not_finite_upstream: Counter[str] = Counter()
        self.inside: Tensor | None = None
        self.records_gradient = any(call.differentiated)
        self._responses: dict[str, GradientResponse] = {}

    @cached_property
    def current_response(self) -> GradientResponse | None:
        """Returns the gradients that the call returns, or None if it records none."""
        if not self.records_gradient:
            return None
        call = self.call
        with use_pin(call.pin):
            return probe_gradients(call, partial(call.operator.rerun, **dict(call.keywords)))

    def is_due(self, every: int, is_again: bool) -> bool:
        """Whether to examine this call. The first that returns is always examined."""
        with _count_lock:
            self.repeated += is_again
            earlier = self.repeated - 1 if is_again else self.returned
        return earlier % every == 0

    def count_missed(self, is_again: bool) -> None:
        """Counts a call that has returned, and was not examined."""
        with _count_lock:
            self.missed += 1
            self.returned += not is_again
            self.has_returned = True

    def count_call(self, positions: Tensor, memory: int) -> int:
        """Counts one call of the forward that has returned; returns how much memory its map of
        elements takes from now on."""
        counts = _histogram(positions, 256)
        with _count_lock:
            self.calls += 1
            self.returned += 1
            self.counts += counts
        inside = positions == (ABOVE_LO if self.call.has_bound[0] else 0)
        if self.calls == 1:
            if positions.numel() <= memory:
                self.inside = inside
                return positions.numel()
        elif self.inside is not None and self.inside.shape == inside.shape:
            self.inside |= inside
        else:
            self.inside = None
        return 0

    def add_gradient(self, positions: Tensor, g: Tensor) -> None:
        """Adds the gradient that arrived for the result of one call."""
        g, positions = g.detach().flatten(), positions.flatten()
        sums = _sum_gradients(positions, g)
        if not sums.isfinite().all():
            finite = g.isfinite()
            index = positions[~finite].to(torch.int16).mul_(2).add_(g[~finite] < 0)
            infinite = _histogram(index, 512).view(256, 2)
            sums = _sum_gradients(positions[finite], g[finite])  # the rest has no share in a norm
            with _count_lock:
                self.infinite += infinite
        with _count_lock:
            self.sums += sums

    def count_gradients(self) -> int:
        return int(self.sums[COUNT].sum()) + int(self.infinite.sum())

    def count_infinite(self, mask: Tensor) -> int:
        """Returns how many infinite and NaN gradients arrived at the positions and signs of a
        mask."""
        return int(self.infinite[mask].sum())

    def response_under(self, convention: str) -> GradientResponse:
        """Returns the gradients that the call would return under a convention."""
        if convention not in self._responses:
            name = self.call.operator.name
            ours = getattr(functional, name)
            self._responses[convention] = probe_gradients(
                self.call, partial(call_with_bounds, name, ours, gradient=convention)
            )
        return self._responses[convention]

    def squared_norm(self, slope: Tensor, constant: Tensor) -> float:
        """Returns the squared norm of slope * |g| + constant, over the gradients g that arrived."""
        slope, constant = slope[:, SIGNS], constant[:, SIGNS]
        count, first, second = self.sums.unsqueeze(-1)
        squares = slope**2 * second + 2 * slope * constant * first + constant**2 * count
        return max(squares.sum().item(), 0.0)


class Site:
    """A place in the code that makes a call, with all variants of the call: a row of a report."""

    def __init__(self, key: SiteKey, is_of_backward: bool = False) -> None:
        self.key = key
        self.is_of_backward = is_of_backward  # whether backward was the first to come here
        self._variants: dict[Call, Variant] = {}
        self.bounds: dict[tuple[str, str], None] = {}  # as the program has them, in order
        self.hazards: dict[Any, Any] = {}  # noted by lint.py and consumers.py

    @property
    def variants(self) -> list[Variant]:
        """Those of calls that returned."""
        # Of a copy, because the program may go on meanwhile.
        return [v for v in list(self._variants.values()) if v.has_returned]

    def find_variant(self, call: Call) -> Variant | None:
        return self._variants.get(call)

    def add_variant(self, variant: Variant) -> Variant:
        """Returns the variant, or the one that another thread has added for the same call."""
        return self._variants.setdefault(variant.call, variant)

    def may_run_again_as(self, key: SiteKey, call: Call) -> bool:
        """Whether a call of the same operator may be one of these under another name."""
        differs_in_name = self.key == SiteKey(
            key.caller, self.key.function, key.through, key.gradient
        )
        return differs_in_name and any(v.call.operator is call.operator for v in self.variants)

    @property
    def follows_torch(self) -> bool:
        """Whether the installed release of torch decides the gradient."""
        return self.key.gradient == "torch" and all(
            v.call.operator.follows_torch for v in self.variants
        )

    def recording_variants(self) -> list[Variant]:
        """Returns the variants that recorded a gradient."""
        return [v for v in self.variants if v.records_gradient]

    def variants_with_gradients(self) -> list[Variant]:
        """Returns the variants for which gradients arrived."""
        return [v for v in self.variants if v.count_gradients()]

    def remember_bounds(self, lo: str, hi: str) -> None:
        """Remembers a pair of bounds, if there is room for it."""
        if len(self.bounds) < MOST_BOUNDS:
            self.bounds[lo, hi] = None

    def count_by_kind(self) -> dict[str, int]:
        """Returns how many elements were at each kind of position."""
        counts = dict.fromkeys(("nan", "at_bound", "inside", "beyond"), 0)
        for variant in self.variants:
            for position, example in example_elements(*variant.call.has_bound).items():
                counts[kind_of_position(*example)] += int(variant.counts[position])
        return counts

    def count_dead(self) -> int | None:
        """Returns how many elements were never inside their bounds, or None if shapes changed or
        memory ran out."""
        maps = [v.inside for v in self.variants if v.calls]
        if not maps or any(m is None or m.shape != maps[0].shape for m in maps):  # type: ignore[union-attr]
            return None
        inside = torch.stack([m.cpu() for m in maps]).any(0)  # type: ignore[union-attr]
        return int((~inside).sum())

    def measure_distances(self) -> dict[str, float | None]:
        """Returns how far each convention would move the gradient, as the norm of the difference
        over the norm."""
        pairs = [(v, v.current_response) for v in self.variants_with_gradients()]
        if not pairs:
            return {}
        size = sum(v.squared_norm(*current) for v, current in pairs if current)
        has_extremum = any(v.call.operator.name in EXTREMA for v, _ in pairs)
        distances: dict[str, float | None] = {}
        for convention in EXACT if has_extremum else CONVENTIONS:
            far = sum(
                _squared_distance(v, v.response_under(convention), current)
                for v, current in pairs
                if current
            )
            distances[convention] = math.sqrt(far / size) if size else None if far else 0.0
        return distances

    def count_infinite_changes(self, convention: str) -> int:
        """Returns how many infinite or NaN gradients the convention would treat differently from
        the current one."""
        return sum(
            v.count_infinite(
                (v.response_under(convention).slope != v.current_response.slope).any(-1)
            )
            for v in self.variants
            if v.current_response is not None and v.infinite.any()
        )

    def compare_conventions(self, one: str, other: str) -> tuple[float, int]:
        """Returns the relative norm of the difference between two conventions, and how many
        gradients have another sign; 0 is a sign of its own."""
        far = size = 0.0
        signs = 0
        for v in self.variants_with_gradients():
            a, b = v.response_under(one), v.response_under(other)
            far += _squared_distance(v, a, b)
            size += max(v.squared_norm(*a), v.squared_norm(*b))
            differ = (a.slope.sign() != b.slope.sign()).sum(-1)
            signs += int((differ * v.sums[COUNT][:, :2]).sum())
        return math.sqrt(far / size) if size else 0.0, signs


def passing_mask(response: GradientResponse) -> Tensor:
    """Returns whether a gradient is passed on, by position and sign."""
    return (response.slope != 0).any(-1)


def _squared_distance(variant: Variant, a: GradientResponse, b: GradientResponse) -> float:
    return variant.squared_norm(*(p - q for p, q in zip(a, b)))


def _sum_gradients(positions: Tensor, g: Tensor) -> Tensor:
    """Returns the count of elements, the sum of |g| and the sum of g squared, for every position
    and sign."""
    # On a CPU, temporary tensors (20 bytes per element) then stay in the cache.
    part = PART_SIZE if g.device.type == "cpu" else max(g.numel(), 1)
    parts = zip(positions.split(part), g.split(part), strict=True)
    return sum(
        (_sum_part(*p) for p in parts),
        torch.zeros(3, 256, 3, dtype=torch.float64, device="cpu"),
    )


def _sum_part(positions: Tensor, g: Tensor) -> Tensor:
    index = positions.to(torch.int16).mul_(3).add_(g < 0).add_(g == 0, alpha=2)
    size = g.abs().double()
    if g.dtype == torch.float64:
        size.masked_fill_((size > LARGEST) & (size < math.inf), LARGEST)
    weights = (None, size, size.square())
    return torch.stack([_histogram(index, 768, w).double() for w in weights]).view(3, 256, 3)


def _histogram(index: Tensor, length: int, weights: Tensor | None = None) -> Tensor:
    if index.is_cuda and torch.are_deterministic_algorithms_enabled():
        # There it has no deterministic kernel, and would raise.
        index, weights = index.cpu(), None if weights is None else weights.cpu()
    return torch.bincount(index.flatten(), weights, length).cpu()
