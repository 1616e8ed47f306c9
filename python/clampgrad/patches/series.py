"""The patch series that come with the package: where they are, what they are for."""

from dataclasses import dataclass
from pathlib import Path

# Put here by setup.py, with the table of conventions; an editable install has the repository's own.
FILES = Path(__file__).parent / "files"
PATCHES = (FILES if FILES.is_dir() else Path(__file__).parents[3]) / "patches"


class Refusal(Exception):
    """What cannot be done, in a sentence for people."""


@dataclass
class Series:
    name: str
    releases: list[str]
    convention: str
    summary: str
    patches: list[Path]
    optional: set[Path]

    def fits(self, release: str) -> bool:
        """Whether it was made for a release such as 2.13.1."""
        return ".".join(release.split(".")[:2]) in self.releases


def read(path: Path) -> Series:
    """A `series` file: `# Key: value` lines, then a patch a line, its path relative to the file."""
    keys: dict[str, str] = {}
    patches: list[Path] = []
    optional: set[Path] = set()
    for line in path.read_text().splitlines():
        if line.startswith("# ") and ": " in line:
            key, value = line[2:].split(": ", 1)
            keys.setdefault(key, value)
        elif line and not line.startswith("#"):
            name, *flags = line.split()
            patches.append((path.parent / name).resolve())
            if "optional" in flags:
                optional.add(patches[-1])
    name = path.parent.relative_to(PATCHES).as_posix()
    releases = keys["Releases"].split()
    return Series(name, releases, keys["Convention"], keys["Summary"], patches, optional)


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
