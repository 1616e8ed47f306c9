"""A checkout and the series of patches. The package's own code for both, which needs no torch."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "python" / "clampgrad"))

from patches.apply import apply, attempt, files_of, state_of  # noqa: E402
from patches.series import Refusal, Series, all_series, named  # noqa: E402
from patches.tree import changed_files, git, release_of  # noqa: E402

__all__ = ["ROOT", "Refusal", "Series", "Tree", "all_series", "attempt", "files_of", "named"]


@dataclass
class Tree:
    path: Path
    any_release: bool = False

    @property
    def release(self) -> str:
        return release_of(self.path)

    @property
    def commit(self) -> str | None:
        return git(self.path, "rev-parse", "HEAD").stdout.strip() or None

    @property
    def changed(self) -> list[str]:
        """The tracked files that differ from the commit."""
        return changed_files(self.path)

    def has(self, series: str) -> bool:
        return state_of(self.path, named(series)) == "applied"

    def would_take(self, series: str) -> None:
        """Refuses a series that does not apply."""
        apply(self.path, series, check=True, reverse=False, any_release=self.any_release)

    def put(self, series: str, reverse: bool = False) -> None:
        """Applies a series, or undoes it."""
        apply(self.path, series, check=False, reverse=reverse, any_release=self.any_release)
