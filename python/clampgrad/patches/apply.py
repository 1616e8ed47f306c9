"""Applying a series to a source tree: whole, or not at all."""

import re
import tempfile
from pathlib import Path

from .series import Refusal, Series, all_series, choices, default, named
from .tree import (
    YAML,
    Status,
    changed_files,
    convention_of,
    git,
    is_repository,
    release_of,
    run_git,
)


def files_of(*patches: Path) -> list[str]:
    """The files that patches change or add."""
    lines = (line for patch in patches for line in patch.read_text().splitlines())
    return list(dict.fromkeys(line[6:] for line in lines if line.startswith(("--- a/", "+++ b/"))))


def files_added(patch: Path) -> list[str]:
    return re.findall(r"^--- /dev/null\n\+\+\+ b/(.*)$", patch.read_text(), re.MULTILINE)


def copy_of(source: Path, series: Series, to: Path) -> Path:
    """The files that a series touches, in a repository of their own: what is tried is tried there."""
    for name in files_of(*series.patches):
        write(to / name, content(source / name))
    git(to, "init", "--quiet")
    return to


def committed(source: Path, series: Series, to: Path) -> None:
    """The files that a series touches, as they are in the commit, in a repository of their own."""
    to.mkdir(exist_ok=True)
    for name in files_of(*series.patches):
        shown = run_git(source, "show", f"HEAD:./{name}")
        if shown.returncode == 0:
            write(to / name, shown.stdout)
    git(to, "init", "--quiet")


def of_the_commit(source: Path, series: Series) -> set[Path]:
    """The optional patches that the commit has while it does not have the series. Undoing that leaves them."""
    if not series.optional or not is_repository(source):
        return set()
    with tempfile.TemporaryDirectory() as scratch:
        before = Path(scratch)
        committed(source, series, before)
        if state_of(before, series) != "not applied":
            return set()
        reverse = ("apply", "--reverse", "--check")
        return {p for p in series.optional if git(before, *reverse, str(p)).returncode == 0}


def state_of(source: Path, series: Series) -> str:
    """applied, not applied, or in part: by undoing it on a copy, from its end.

    Optional patches are undone where they are there, and do not count.
    """
    with tempfile.TemporaryDirectory() as scratch:
        copy = copy_of(source, series, Path(scratch))
        undone = 0
        for patch in reversed(series.patches):
            done = git(copy, "apply", "--reverse", str(patch)).returncode == 0
            undone += done and patch not in series.optional
    needed = len(series.patches) - len(series.optional)
    return "applied" if undone == needed else "in part" if undone else "not applied"


def status(source: Path) -> Status:
    release = release_of(source)
    commit = git(source, "rev-parse", "HEAD").stdout.strip() if is_repository(source) else ""
    return Status(
        release,
        commit or None,
        bool(changed_files(source)),
        convention_of((source / YAML).read_text()),
        {s.name: state_of(source, s) for s in all_series().values() if s.fits(release)},
    )


def apply(
    source: Path, name: str | None, check: bool, reverse: bool, any_release: bool = False
) -> tuple[list[str], list[str]]:
    """Applies or undoes a series in the working tree; the names of patches done and skipped.

    Everything is tried on a copy of the files first. What git refuses there is never begun here.
    """
    release = release_of(source)
    series = named(name) if name else default(release)
    if not (any_release or series.fits(release)):
        made_for = ", ".join(series.releases)
        raise Refusal(
            f"{source} is {release} and {series.name} is for {made_for}; {choices(release)}."
        )
    state = state_of(source, series)
    if state == "in part":
        raise Refusal(f"{series.name} is applied in part: restore the tree (git checkout .) first.")
    if state == ("not applied" if reverse else "applied"):
        raise Refusal(f"{series.name} is {'not' if reverse else 'already'} applied.")
    if not reverse and (changed := changed_files(source)):
        raise Refusal(f"Commit or stash the changes to {', '.join(changed)} in {source} first.")
    with tempfile.TemporaryDirectory() as scratch:
        done, skipped = attempt(source, series, reverse, Path(scratch))
        if not check:
            install(Path(scratch), source, files_of(*done))
    return [patch.name for patch in done], [patch.name for patch in skipped]


def attempt(source: Path, series: Series, reverse: bool, to: Path) -> tuple[list[Path], list[Path]]:
    """Applies or undoes a series on a copy of its files; the patches done and skipped."""
    copy = copy_of(source, series, to)
    before = of_the_commit(source, series) if reverse else set()
    done: list[Path] = []
    skipped: list[Path] = []
    for patch in reversed(series.patches) if reverse else series.patches:
        if reverse and patch in before:
            skipped.append(patch)
            continue
        result = git(copy, "apply", *["--reverse"] * reverse, str(patch))
        if result.returncode == 0:
            done.append(patch)
        elif patch in series.optional:
            skipped.append(patch)
        else:
            raise Refusal(f"{patch.name} does not apply:\n{result.stderr.strip()}")
    return done, skipped


def install(copy: Path, source: Path, names: list[str]) -> None:
    """The patched files in place of the old ones; if one cannot be written, or in an interrupt, the old ones again."""
    before = {name: content(source / name) for name in names}
    try:
        for name in names:
            write(source / name, content(copy / name))
    except BaseException:
        for name, old in before.items():
            if content(source / name) != old:
                write(source / name, old)
        raise


def content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def write(path: Path, content: bytes | None) -> None:
    """Writes a file, or removes it where there was none before."""
    if content is None:
        path.unlink(missing_ok=True)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
