"""The patch series that come with the package: where they are, what they are for."""

from dataclasses import dataclass
from pathlib import Path

# Put here by the build; an editable install has the repository's own.
FILES = Path(__file__).parent / "files"
PATCHES = (FILES if FILES.is_dir() else Path(__file__).parents[3]) / "patches"


class Refusal(Exception):
    """What cannot be done, in a sentence for people."""


@dataclass
class Claim:
    """What a patch promises about gradients.

    `scope` holds words such as "numbers", "tensors" or "fmax": the operators and kinds of bounds that
    have `convention` afterwards; all of them if it is empty. Everything else keeps its gradient.
    """

    convention: str | None = None
    scope: frozenset[str] = frozenset()
    unchanged: bool = False  # no gradient changes: what is saved, or how fast it is, does
    # What the nodes within the scope keep for backward, if that is the point.
    saves: tuple[str, ...] = ()

    def covers(self, operator: str, kind: str) -> bool:
        return not self.scope or bool(self.scope & {operator, kind})


@dataclass
class Series:
    name: str
    releases: list[str]
    claim: Claim
    summary: str
    patches: list[Path]
    optional: set[Path]  # skipped, with a word, where the text they change is not there
    unproved: set[Path]  # tests and documentation: no gradient depends on them
    # Upstream's tests of the gradients that it takes away, as FILE:PATTERN, of whole names as fnmatch has them.
    fails: tuple[str, ...] = ()

    def fits(self, release: str) -> bool:
        """Whether it was made for a release such as 2.13.1."""
        return ".".join(release.split(".")[:2]) in self.releases

    @property
    def span(self) -> str:
        """The first and the last of its releases, as words; it is for all between them too."""
        first, last = self.releases[0], self.releases[-1]
        return first if first == last else f"{first} to {last}"


def read(path: Path) -> Series:
    """A `series` file: `# Key: value` lines, then one patch per line, its path relative to the file."""
    keys: dict[str, str] = {}
    patches: list[Path] = []
    flagged: dict[str, set[Path]] = {"optional": set(), "unproved": set()}
    for line in path.read_text().splitlines():
        if line.startswith("# ") and ": " in line:
            key, value = line[2:].split(": ", 1)
            keys.setdefault(key, value)
        elif line and not line.startswith("#"):
            name, *flags = line.split()
            patches.append((path.parent / name).resolve())
            for flag in flags:
                flagged[flag].add(patches[-1])
    name = path.parent.relative_to(PATCHES).as_posix()
    claim = Claim(
        keys["Convention"],
        frozenset(keys.get("Scope", "").split()),
        keys.get("Gradients") == "unchanged",
        tuple(keys.get("Saves", "").split()),
    )
    fails = tuple(keys.get("Fails", "").split())
    return Series(
        name, keys["Releases"].split(), claim, keys["Summary"], patches, **flagged, fails=fails
    )


def all_series() -> dict[str, Series]:
    found = (read(path) for path in sorted(PATCHES.rglob("series")))
    return {series.name: series for series in found}


def named(name: str) -> Series:
    try:
        return all_series()[name]
    except KeyError:
        raise Refusal(f"There is no series {name}; there are {', '.join(all_series())}.") from None


def choices(release: str) -> str:
    """The series for a release, as words."""
    known = all_series().values()
    names = [series.name for series in known if series.fits(release)]
    if names:
        return f"for {release} there is {', '.join(names)}"
    releases = sorted({r for series in known for r in series.releases}, key=lambda r: int(r[2:]))
    return f"there is none for {release}, only for {', '.join(releases)}"


def default(release: str) -> Series:
    """The one series for a release, where there is one and no choice."""
    fitting = [series for series in all_series().values() if series.fits(release)]
    if len(fitting) != 1:
        word = "Name a series with --series" if fitting else "There is nothing to apply"
        raise Refusal(f"{word}: {choices(release)}.")
    return fitting[0]
