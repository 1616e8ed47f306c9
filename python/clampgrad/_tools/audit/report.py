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
from clampgrad._contract.words import counted
from clampgrad._pin.installed import describe_patch
from clampgrad._tools.audit import text
from clampgrad._tools.audit.callers import short
from clampgrad._tools.audit.finding import Finding, found_at
from clampgrad._tools.audit.sites import Key, Site
from clampgrad._tools.audit.suspects import Suspect
from clampgrad._tools.audit.text import Seen
from clampgrad._tools.tables import preformatted, width_of
from clampgrad._torch.surroundings import unseen

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
        self._sites: dict[Key, Site] = {}
        self._every = every
        self._folder = os.getcwd()  # the program may go elsewhere
        self.skipped: Counter[str] = Counter()
        self.compared = compared
        self._suspects = suspects
        self._failed: set[Key] = set()  # sites of which no finding could be made
        self._unknown: Counter[str] = Counter()  # of those skipped, whose gradient may have changed

    def _skip(self, reason: str, follows_torch: bool = True) -> None:
        """Counts a call that is not examined."""
        self.skipped[reason] += 1
        if follows_torch:
            self._unknown[reason] += 1

    def _safely(self, look: Callable[..., Any], *args: Any) -> Any:
        """If the audit itself fails, the program goes on, and the report says so."""
        try:
            return look(*args)
        except Exception as error:
            self._skip(self._failure(error))
            return None

    def _before(self, look: Callable[..., Any], *args: Any) -> Any:
        """The same before a call: returns what to do with its result. A call that raises an error
        of its own is none, so the audit's failure counts only once there is a result."""
        try:
            return look(*args)
        except Exception as error:
            reason = self._failure(error)
            return lambda _: self._skip(reason)

    def _failure(self, error: Exception) -> str:
        logger.debug("audit: a call was not looked at", exc_info=error)
        return f"{type(error).__name__} in the audit"

    def _found_at(self, site: Site) -> Finding | None:
        try:
            return found_at(site, self.compared)
        except Exception as error:
            if site.key not in self._failed:
                self._failed.add(site.key)
                self._skip(self._failure(error), site.follows_torch)
            return None

    def __iter__(self) -> Iterator[Finding]:
        with unseen():
            findings = [f for site in list(self._sites.values()) if (f := self._found_at(site))]
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
        told = text.text(self._seen(), self.skipped, self._every, width)
        return "\n".join(filter(None, [told, describe_patch()]))

    def _repr_html_(self) -> str:
        return preformatted(self.text())

    def place(self, file: str, line: int) -> str:
        """Returns a place as the report names it: relative to the working
        directory or to site-packages."""
        return f"{short(file, self._folder)}:{line}"

    def summary(self) -> str:
        """Says in a few sentences what the releases of torch changed in the program, and what
        another convention would."""
        return text.summary(self._seen())

    @property
    def suspects(self) -> list[Suspect]:
        """Other calls that a release may have changed: first those whose condition was met."""
        return sorted(self._suspects.values(), key=lambda s: (not s.met, s.file, s.line))

    def _seen(self) -> Seen:
        findings = list(self)
        unknown = Counter(self._unknown)
        if missed := sum(f.missed for f in findings if f.follows_torch):
            unknown[f"left out by every={self._every}"] = missed
        return Seen(findings, self.suspects, unknown, self.compared, self.place)

    def as_data(self) -> dict[str, Any]:
        """Returns everything, in types that JSON has."""
        return {
            "torch": torch.__version__,
            "patched": describe_patch(),
            "summary": self.summary(),
            "compared": list(self.compared),
            "every": self._every,
            "sites": [_plain(asdict(finding)) for finding in self],
            "suspects": [_plain(asdict(suspect)) for suspect in self.suspects],
            "skipped": dict(self.skipped),
        }

    def save(self, path: str | Path) -> None:
        """Writes :meth:`as_data` as JSON."""
        Path(path).write_text(json.dumps(self.as_data(), indent=1, allow_nan=False) + "\n")


def _plain(value: Any) -> Any:
    """JSON has no infinity and no NaN: they become words."""
    if isinstance(value, dict):
        return {key: _plain(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
