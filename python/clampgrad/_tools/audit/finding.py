"""The findings of an audit at one call site."""

import math
from dataclasses import dataclass, field

from clampgrad._contract.changes import CHANGES, COMPARED, OF_CLAMPS
from clampgrad._contract.table import EXACT
from clampgrad._tools.audit.calls import is_of_list
from clampgrad._tools.audit.lint import Diagnostic, diagnose, dtype_name, write_remedy
from clampgrad._tools.audit.sites import Site

# The conventions that torch has had by itself, and in which releases.
RELEASES = {"inclusive": "up to 2.13", "joint": "from 2.14 on"}


@dataclass
class Finding:
    """What an audit saw at one call site, counted over the calls that it examined.

    Attributes:
        function: the name of the function that the program calls.
        gradient: ``"torch"`` for torch's own, or the convention of the pin or of the call.
        file: the file of the call.
        line: its line.
        module: the path of the module that made the call, or ``""`` outside of modules.
        dtypes: the dtypes of the results.
        bounds: pairs of lower and upper bound as in the program: a number, ``"Tensor"`` or ``""``.
        calls: how many calls were examined.
        recorded: how many of them recorded a gradient.
        elements: the number of elements of all calls.
        at_bound: how many of them are exactly at a bound.
        beyond: how many are beyond one.
        nan: how many are NaN.
        dead: how many elements of the input were never inside their bounds; None if shapes changed
            from call to call, or memory ran out.
        moved: for each convention, how far it would move the gradient relative to its norm; None if
            the gradient is 0 now and would not be. Empty if no gradient arrived.
        not_finite: for each of ``"inclusive"`` and ``"joint"``, how many infinite or NaN
            gradients it would pass on and the current gradient blocks, or the reverse.
            They have no share in `moved`.
        follows_torch: whether the gradient depends on the installed release.
        warnings: a :class:`Diagnostic` for each warning.
        remedy: what to do about all of them.
        through: the operator of the clamp family that the function calls, or ``""`` if it is itself
            one.
        compared: the releases of PyTorch that are compared.
        missed: how many calls that recorded a gradient were not examined, because `every` of the
            audit is more than 1. A call that backward runs again counts as another.
    """

    function: str
    gradient: str
    file: str
    line: int
    module: str
    dtypes: list[str]
    bounds: list[list[str]]
    calls: int
    recorded: int
    elements: int
    at_bound: int
    beyond: int
    nan: int
    dead: int | None
    moved: dict[str, float | None]
    not_finite: dict[str, int]
    follows_torch: bool
    warnings: list[Diagnostic] = field(default_factory=list)
    remedy: str = ""
    through: str = ""
    compared: tuple[str, ...] = COMPARED
    missed: int = 0

    @property
    def farthest(self) -> tuple[float, str]:
        """Returns the exact convention that would move the gradient farthest, and how far."""
        far = {k: math.inf if v is None else v for k, v in self.moved.items() if k in EXACT}
        name = max(far, key=lambda k: far[k], default="")
        return far.get(name, 0.0), name

    @property
    def by_release(self) -> tuple[float, str]:
        """Returns how far the gradient moves with the release of torch, and the convention that it
        then has: ``"inclusive"`` up to 2.13, ``"joint"`` from 2.14 on. Returns (0, "") if the
        gradient is the same on the releases that are compared.
        """
        is_decided = self.follows_torch and CHANGES[OF_CLAMPS].is_between(self.compared)
        if not is_decided or not self.moved:
            return 0.0, ""
        moved = {k: None if self.not_finite[k] else self.moved[k] for k in RELEASES}
        far = {k: math.inf if v is None else v for k, v in moved.items()}
        name = max(far, key=lambda k: far[k])
        return (far[name], name) if far[name] else (0.0, "")

    @property
    def is_of_list(self) -> bool:
        """Whether it calls an operator for lists of Tensors, which no pin reaches."""
        return is_of_list(self.through or self.function)

    def _importance(self) -> tuple[float, ...]:
        """Ranks sites: highest those that the release of torch decides, then those whose gradient
        would move or that have warnings, then those without a gradient, and lowest those whose ties
        have no consequence."""
        farthest, _ = self.farthest
        ties = self.at_bound / max(self.elements, 1)
        decided = self.by_release[0]
        if decided:
            return 3, decided, len(self.warnings), ties
        if farthest or self.warnings:
            return 2, farthest, len(self.warnings), ties
        if not self.moved:
            return 1, ties, self.beyond, self.elements
        return 0, -ties, self.beyond, self.elements


def make_finding(site: Site, compared: tuple[str, ...]) -> Finding:
    variants = [v for v in site.variants if v.calls]
    counts = site.count_by_kind()
    releases_differ = CHANGES[OF_CLAMPS].is_between(compared)
    warnings = [w for w in diagnose(site) if releases_differ or w.name != "conventions-differ"]
    return Finding(
        function=site.key.function,
        gradient=site.key.gradient,
        **site.key.caller._asdict(),
        dtypes=list(dict.fromkeys(dtype_name(v.call.dtype) for v in variants)),
        bounds=[list(pair) for pair in site.bounds],
        calls=sum(v.calls for v in variants),
        recorded=sum(v.calls for v in variants if v.current_response is not None),
        elements=sum(counts.values()),
        at_bound=counts["at_bound"],
        beyond=counts["beyond"],
        nan=counts["nan"],
        dead=site.count_dead(),
        moved=site.measure_distances(),
        not_finite={name: site.count_infinite_changes(name) for name in RELEASES},
        follows_torch=site.follows_torch,
        warnings=warnings,
        remedy=write_remedy(warnings, site.key.function, site.key.through, site.key.caller.file),
        through=site.key.through,
        compared=compared,
        missed=sum(v.missed for v in site.recording_variants()),
    )
