"""What an audit found: a sentence, warnings, a table; and all of it as data."""

from __future__ import annotations

import json
import math
import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from clampgrad._audit.callers import short
from clampgrad._audit.lint import USUAL, Diagnostic, Thresholds, diagnostics, name_of
from clampgrad._audit.sites import Key, Site
from clampgrad._audit.unseen import unseen
from clampgrad._html import paragraphs
from clampgrad._installed import patched
from clampgrad._table import EXACT
from clampgrad._text_table import width_of

# The conventions that torch has had by itself, and in which releases.
RELEASES = {"inclusive": "up to 2.13", "joint": "from 2.14 on"}


@dataclass
class Finding:
    """What an audit saw at one call site, counted over the calls that it examined.

    Attributes:
        function: the name of the function.
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
        dead: how many elements of the input were inside their bounds in no call; None if shapes changed
            from call to call, or `memory` was used up.
        moved: for each convention, how far it would move the gradient relative to its norm; None if the
            gradient is 0 now and would not be. Empty if no gradient arrived.
        not_finite: for each of ``"inclusive"`` and ``"joint"``, how many infinite or NaN gradients it would
            pass on and the current gradient blocks, or the reverse. They have no share in `moved`.
        follows_torch: whether the gradient depends on the installed release.
        warnings: a :class:`Diagnostic` for each warning.
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

    @property
    def farthest(self) -> tuple[float, str]:
        """How far an exact convention would move the gradient at most, and which one."""
        moved = {k: math.inf if v is None else v for k, v in self.moved.items() if k in EXACT}
        name = max(moved, key=lambda k: moved[k], default="")
        return moved.get(name, 0.0), name

    @property
    def by_release(self) -> tuple[float, str]:
        """How far the gradient moves with the release of torch, and the convention that it then has.

        Up to 2.13 that is ``"inclusive"``, from 2.14 on ``"joint"``. (0, "") where no release decides.
        """
        if not self.follows_torch or not self.moved:
            return 0.0, ""
        moved = {k: None if self.not_finite[k] else self.moved[k] for k in RELEASES}
        far = {k: math.inf if v is None else v for k, v in moved.items()}
        name = max(far, key=lambda k: far[k])
        return (far[name], name) if far[name] else (0.0, "")

    def _importance(self) -> tuple[float, ...]:
        """Sites that the release of torch decides first, then others whose gradient would move and
        warnings, then those without a gradient; elements that tie without consequence last."""
        farthest, _ = self.farthest
        ties = self.at_bound / max(self.elements, 1)
        decided, _ = self.by_release
        if decided:
            return 3, decided, len(self.warnings), ties
        if farthest or self.warnings:
            return 2, farthest, len(self.warnings), ties
        if not self.moved:
            return 1, ties, self.beyond, self.elements
        return 0, -ties, self.beyond, self.elements


class Report:
    """What an audit saw. You can read it at any time, even during the audit.

    Iterating yields a :class:`Finding` for every call site, those that the release of torch decides first.
    ``str`` and notebooks show a summary, the warnings and a table, which fits the terminal;
    :meth:`as_data` and :meth:`save` include everything.

    Attributes:
        skipped: how many calls were not examined, by reason.
    """

    def __init__(self, every: int = 1, thresholds: Thresholds = USUAL) -> None:
        self._sites: dict[Key, Site] = {}
        self._every, self._thresholds = every, thresholds
        self._folder = os.getcwd()  # the program may go elsewhere
        self.skipped: Counter[str] = Counter()

    def __iter__(self) -> Iterator[Finding]:
        with unseen():
            findings = [_finding(site, self._thresholds) for site in self._sites.values()]
        return iter(sorted(findings, key=Finding._importance, reverse=True))

    def __len__(self) -> int:
        return len(self._sites)

    def __repr__(self) -> str:
        warned = sum(len(finding.warnings) for finding in self)
        return f"<clampgrad.Report: {len(self)} call sites, {warned} warnings; print it>"

    def __str__(self) -> str:
        return self.text(width_of(sys.stdout))

    def text(self, width: int | None = None) -> str:
        """Returns what ``str`` does, in lines of at most `width` characters, or as wide as the table is."""
        from clampgrad._audit.text import text

        told = text(list(self), self.skipped, self._every, self.place, width)
        return "\n".join(filter(None, [told, patched()]))

    def _repr_html_(self) -> str:
        from clampgrad._audit.text import html

        told = html(list(self), self.skipped, self._every, self.place)
        return told + paragraphs([patched() or ""])

    def place(self, file: str, line: int) -> str:
        """Returns a place as the report names it: relative to the working directory or to site-packages."""
        return f"{short(file, self._folder)}:{line}"

    def summary(self) -> str:
        """Says in a few sentences whether the release of torch, or the convention, matters to the program."""
        from clampgrad._audit.text import summary

        return summary(list(self), self.place)

    def as_data(self) -> dict[str, Any]:
        """Returns everything, in types that JSON has."""
        return {
            "torch": torch.__version__,
            "patched": patched(),
            "summary": self.summary(),
            "every": self._every,
            "thresholds": asdict(self._thresholds),
            "sites": [_plain(asdict(finding)) for finding in self],
            "skipped": dict(self.skipped),
        }

    def save(self, path: str | Path) -> None:
        """Writes :meth:`as_data` as JSON."""
        text = json.dumps(self.as_data(), indent=1, allow_nan=False)
        Path(path).write_text(text + "\n")

    def picture(self, path: str | Path, most: int = 12) -> None:
        """Draws where elements are and how far gradients would move, one bar per call site."""
        from clampgrad._audit.picture import picture

        picture(list(self)[:most], path, self.place)


def _plain(value: Any) -> Any:
    """JSON has no infinity and no NaN: they become words."""
    if isinstance(value, dict):
        return {key: _plain(v) for key, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _finding(site: Site, thresholds: Thresholds) -> Finding:
    variants = [v for v in site.variants.values() if v.calls]
    kinds = site.counts()
    return Finding(
        function=site.key.function,
        gradient=site.key.gradient,
        **site.key.caller._asdict(),
        dtypes=list(dict.fromkeys(name_of(v.call.dtype) for v in variants)),
        bounds=[list(pair) for pair in site.bounds],
        calls=sum(v.calls for v in variants),
        recorded=sum(v.calls for v in variants if v.now is not None),
        elements=sum(kinds.values()),
        at_bound=kinds["at_bound"],
        beyond=kinds["beyond"],
        nan=kinds["nan"],
        dead=site.dead(),
        moved=site.moved(),
        not_finite={name: site.infinite_under(name) for name in RELEASES},
        follows_torch=site.follows_torch,
        warnings=diagnostics(site, thresholds),
    )
