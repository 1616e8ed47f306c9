"""A checkout and the series of patches. The package's own code for both, which needs no torch."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from checkout import ROOT
from tools.series import (
    Refusal,
    Series,
    all_series,
    apply,
    attempt,
    changed_files,
    committed,
    content,
    files_added,
    files_of,
    git,
    is_repository,
    named,
    release_of,
    state_of,
)

__all__ = [
    "ROOT",
    "Refusal",
    "Series",
    "Tree",
    "all_series",
    "attempt",
    "files_added",
    "files_of",
    "named",
]


@dataclass
class Tree:
    path: Path
    series: tuple[str, ...] = ()  # what this run asks of it
    any_release: bool = False

    @property
    def release(self) -> str:
        return release_of(self.path)

    @property
    def commit(self) -> str | None:
        return (
            git(self.path, "rev-parse", "HEAD").stdout.strip() if is_repository(self.path) else None
        )

    def applied(self) -> str | None:
        """The series that is applied in the tree. Where one begins as another does, it is the longer one."""
        known = sorted(all_series().values(), key=lambda s: len(s.patches), reverse=True)
        mine = [s for s in known if s.name in self.series or s.fits(self.release)]
        return next((s.name for s in mine if state_of(self.path, s) == "applied"), None)

    def changed(self) -> list[str]:
        """The tracked files that are neither those of the commit nor what the applied series makes of them."""
        changed = set(changed_files(self.path))
        series = self.applied()
        if not (series and changed):
            return sorted(changed)
        with tempfile.TemporaryDirectory() as scratch:
            before, after = Path(scratch, "before"), Path(scratch, "after")
            after.mkdir()
            committed(self.path, named(series), before)
            attempt(before, named(series), False, after)
            names = files_of(*named(series).patches)
            own = {n for n in names if content(after / n) == content(self.path / n)}
        return sorted(changed - own)

    def would_take(self, series: str) -> None:
        """Refuses a series that does not apply."""
        apply(self.path, series, check=True, reverse=False, any_release=self.any_release)

    def put(self, series: str, reverse: bool = False) -> None:
        """Applies a series, or undoes it."""
        apply(self.path, series, check=False, reverse=reverse, any_release=self.any_release)
