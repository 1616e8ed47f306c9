"""The report of an audit: a sentence, warnings, a table; and all of it as data."""

import json
import logging
import math
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from clampgrad._contract.changes import COMPARED
from clampgrad._contract.words import format_count
from clampgrad._pin.installed import describe_patch
from clampgrad._tools.audit import text
from clampgrad._tools.audit.callers import shorten_path
from clampgrad._tools.audit.finding import Finding, make_finding
from clampgrad._tools.audit.sites import Site, SiteKey
from clampgrad._tools.audit.suspects import Suspect
from clampgrad._tools.audit.text import Contents
from clampgrad._tools.tables import preformatted, width_of
from clampgrad._torch.quiet import quietly
from clampgrad._torch.surroundings import hidden_from_modes

logger = logging.getLogger("clampgrad")


class Report:
    """What an audit saw. You can read it at any time, even during the audit.

    Iterating yields a :class:`Finding` for every call site, those that the release of torch decides
    first. ``str`` and notebooks show a summary, the warnings and a table, which fits the terminal;
    :meth:`as_data` and :meth:`save` include everything.

    Attributes:
        skipped: how many calls were not examined, by reason.
        compared: the releases of PyTorch that are compared.
    """

    def __init__(
        self,
        every: int = 1,
        compared: tuple[str, ...] = COMPARED,
        suspects: Mapping[Any, Suspect] = {},  # noqa: B006
    ) -> None:
        self._sites: dict[SiteKey, Site] = {}
        self._every = every
        self._folder = os.getcwd()  # the program may go elsewhere
        self.skipped: Counter[str] = Counter()
        self.compared = compared
        self._suspects = suspects
        self._failed: set[SiteKey] = set()  # sites of which no finding could be made
        self._unknown: Counter[str] = Counter()  # of those skipped, whose gradient may have changed

    def _skip(self, reason: str, follows_torch: bool = True) -> None:
        """Counts a call that is not examined."""
        self.skipped[reason] += 1
        if follows_torch:
            self._unknown[reason] += 1

    def _run_safely(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls a function of the audit. If it fails, the program goes on; the report says so."""
        try:
            with quietly():
                return function(*args)
        except Exception as error:
            self._skip(self._describe_failure(error))
            return None

    def _run_before_call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Does the same before a call of the program; returns what to do with its result. A failure
        counts only once there is a result, because a call that raises an error is none."""
        try:
            with quietly():
                return function(*args)
        except Exception as error:
            reason = self._describe_failure(error)
            return lambda _: self._skip(reason)

    def _describe_failure(self, error: Exception) -> str:
        logger.debug("audit: a call was not looked at", exc_info=error)
        return f"{type(error).__name__} in the audit"

    def _make_finding(self, site: Site) -> Finding | None:
        try:
            return make_finding(site, self.compared)
        except Exception as error:
            if site.key not in self._failed:
                self._failed.add(site.key)
                self._skip(self._describe_failure(error), site.follows_torch)
            return None

    def _called_sites(self) -> list[Site]:
        return [site for site in list(self._sites.values()) if site.variants]

    def __iter__(self) -> Iterator[Finding]:
        with hidden_from_modes():
            findings = [f for site in self._called_sites() if (f := self._make_finding(site))]
        return iter(sorted(findings, key=Finding._importance, reverse=True))

    def __len__(self) -> int:
        return len(self._called_sites())

    def __repr__(self) -> str:
        warned = sum(len(finding.warnings) for finding in self)
        sites, warnings = format_count(len(self), "call site"), format_count(warned, "warning")
        return f"<clampgrad.Report: {sites}, {warnings}; print it>"

    def __str__(self) -> str:
        return self.text(width_of(sys.stdout))

    def text(self, width: int | None = None) -> str:
        """Returns what ``str`` does, in lines of at most `width` characters,
        or as wide as the table is."""
        report = text.format_report(self._contents(), self.skipped, self._every, width)
        return "\n".join(filter(None, [report, describe_patch()]))

    def _repr_html_(self) -> str:
        return preformatted(self.text())

    def place(self, file: str, line: int) -> str:
        """Returns a place as the report names it: relative to the working
        directory or to site-packages."""
        return f"{shorten_path(file, self._folder)}:{line}"

    def summary(self) -> str:
        """Says in a few sentences what the releases of torch changed in the program, and what
        another convention would."""
        return text.summary(self._contents())

    @property
    def suspects(self) -> list[Suspect]:
        """Returns other calls that a release may have changed, those whose condition was met
        first."""
        return sorted(self._suspects.values(), key=lambda s: (not s.met, s.file, s.line))

    def _contents(self) -> Contents:
        findings = list(self)
        unknown = Counter(self._unknown)
        if missed := sum(f.missed for f in findings if f.follows_torch):
            unknown[f"left out by every={self._every}"] = missed
        return Contents(findings, self.suspects, unknown, self.compared, self.place)

    def as_data(self) -> dict[str, Any]:
        """Returns everything, in types that JSON has."""
        return {
            "torch": torch.__version__,
            "patched": describe_patch(),
            "summary": self.summary(),
            "compared": list(self.compared),
            "every": self._every,
            "sites": [_to_json(asdict(finding)) for finding in self],
            "suspects": [_to_json(asdict(suspect)) for suspect in self.suspects],
            "skipped": dict(self.skipped),
        }

    def save(self, path: str | Path) -> None:
        """Writes :meth:`as_data` as JSON."""
        Path(path).write_text(json.dumps(self.as_data(), indent=1, allow_nan=False) + "\n")


def _to_json(value: Any) -> Any:
    """Returns a value with words for infinity and NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _to_json(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_json(v) for v in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
