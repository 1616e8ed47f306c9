"""What PyTorch changed from release to release: changes.json, measured by comparing whole releases.

docs/comparing_releases.md says what its columns mean.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_found = json.loads((Path(__file__).with_name("changes.json")).read_text())

# The releases that were compared, the oldest first.
COMPARED: tuple[str, ...] = tuple(_found["compared"])
# Since which the gradient of the clamp family is another.
OF_CLAMPS = "clamp-at-bound"


class Change(NamedTuple):
    id: str
    since: str
    kind: str
    what: str
    condition: str
    pin: str
    upstream: int | None
    calls: list[str]
    until: str = ""

    def has(self, release: str) -> bool:
        """Whether a release has the change."""
        at = number(release)
        return number(self.since) <= at and not (self.until and at >= number(self.until))

    def is_between(self, releases: Iterable[str]) -> bool:
        """Whether some of the releases have the change and others do not."""
        return len({self.has(release) for release in releases}) == 2

    def when(self) -> str:
        return f"in {self.since} alone" if self.until else f"since {self.since}"


CHANGES = {row["id"]: Change(**row) for row in _found["changes"]}


def minor(version: str) -> str:
    """Returns 2.13 of "2.13.1+cpu"."""
    return ".".join(version.partition("+")[0].split(".")[:2])


def number(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))
