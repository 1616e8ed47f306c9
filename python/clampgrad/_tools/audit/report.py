"""The report of an audit: a sentence, warnings, a table; and all of it as data."""

import json
import math
import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from clampgrad._contract.words import counted
from clampgrad._pin.installed import patched
from clampgrad._tools.audit import text
from clampgrad._tools.audit.callers import short
from clampgrad._tools.audit.finding import Finding, found_at
from clampgrad._tools.audit.sites import Key, Site
from clampgrad._tools.tables import preformatted, width_of
from clampgrad._torch.surroundings import unseen


class Report:
    """What an audit saw. You can read it at any time, even during the audit.

    Iterating yields a :class:`Finding` for every call site, those that the release of torch decides
    first. ``str`` and notebooks show a summary, the warnings and a table, which fits the terminal;
    :meth:`as_data` and :meth:`save` include everything.

    Attributes:
        skipped: how many calls were not examined, by reason.
    """

    def __init__(self, every: int = 1) -> None:
        self._sites: dict[Key, Site] = {}
        self._every = every
        self._folder = os.getcwd()  # the program may go elsewhere
        self.skipped: Counter[str] = Counter()

    def __iter__(self) -> Iterator[Finding]:
        with unseen():
            findings = [found_at(site) for site in self._sites.values()]
        return iter(sorted(findings, key=Finding._importance, reverse=True))

    def __len__(self) -> int:
        return len(self._sites)

    def __repr__(self) -> str:
        warned = sum(len(finding.warnings) for finding in self)
        sites, warnings = counted(len(self), "call site"), counted(warned, "warning")
        return f"<clampgrad.Report: {sites}, {warnings}; print it>"

    def __str__(self) -> str:
        return self.text(width_of(sys.stdout))

    def text(self, width: int | None = None) -> str:
        """Returns what ``str`` does, in lines of at most `width` characters,
        or as wide as the table is."""
        told = text.text(list(self), self.skipped, self._every, self.place, width)
        return "\n".join(filter(None, [told, patched()]))

    def _repr_html_(self) -> str:
        return preformatted(self.text())

    def place(self, file: str, line: int) -> str:
        """Returns a place as the report names it: relative to the working
        directory or to site-packages."""
        return f"{short(file, self._folder)}:{line}"

    def summary(self) -> str:
        """Says in a few sentences whether the release of torch, or the
        convention, matters to the program."""
        return text.summary(list(self), self.place)

    def as_data(self) -> dict[str, Any]:
        """Returns everything, in types that JSON has."""
        return {
            "torch": torch.__version__,
            "patched": patched(),
            "summary": self.summary(),
            "every": self._every,
            "sites": [_plain(asdict(finding)) for finding in self],
            "skipped": dict(self.skipped),
        }

    def save(self, path: str | Path) -> None:
        """Writes :meth:`as_data` as JSON."""
        Path(path).write_text(json.dumps(self.as_data(), indent=1, allow_nan=False) + "\n")


def _plain(value: Any) -> Any:
    """JSON has no infinity and no NaN: they become words."""
    if isinstance(value, dict):
        return {key: _plain(v) for key, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
