"""The series of patches in patches/, and which of them a source tree of PyTorch has:

    python lab/series.py
        lists them
    python lab/series.py pytorch
        says which are for this tree, and which it has
    python lab/series.py pytorch --check v2.13.0/joint
        says whether it can be applied and built, and what that would do
    python lab/series.py pytorch --patches v2.13.0/joint
        prints the files that it still lacks, in order, for git am
    python lab/series.py --patches v2.13.0/joint
        prints all files of one

Exit codes: 0, and 2 where it refuses, with one sentence that says why.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PATCHES = ROOT / "patches"
YAML = "tools/autograd/derivatives.yaml"
FUNCTIONS = "torch/csrc/autograd/FunctionsManual.cpp"
NATIVE = "aten/src/ATen/native/native_functions.yaml"


class Refusal(Exception):
    """An error that one sentence explains to people."""


@dataclass
class Series:
    """Patches, and the gradients that PyTorch has with them.

    `scope` holds words such as "numbers", "tensors" or "fmax": the operators and kinds of bounds
    that have `convention` afterwards; all of them if it is empty. Everything else keeps its
    gradient. A series without a convention changes no gradient.
    """

    name: str
    releases: list[str]
    convention: str | None
    scope: frozenset[str]
    summary: str
    patches: list[Path]

    def fits(self, release: str) -> bool:
        """Whether it was made for a release such as 2.13.1."""
        return ".".join(release.split(".")[:2]) in self.releases

    def covers(self, operator: str, kind: str) -> bool:
        """Whether it gives an operator its convention; `kind` is "numbers" or "tensors"."""
        return not self.scope or bool(self.scope & {operator, kind})

    @property
    def span(self) -> str:
        """The first and the last of its releases, as words; it is for all between them too."""
        return " to ".join(dict.fromkeys([self.releases[0], self.releases[-1]]))


def read(path: Path) -> Series:
    """Reads a `series` file: `# Key: value` lines, then one patch per line, its path relative to
    the file.

    Releases and Summary are needed; Convention and Scope are those of Series.
    """
    text = path.read_text()
    keys = dict(reversed(re.findall(r"^# (\w+): (.*)$", text, re.MULTILINE)))
    patches = [(path.parent / p).resolve() for p in re.findall(r"^[^#\s].*", text, re.MULTILINE)]
    name, releases = path.parent.relative_to(PATCHES).as_posix(), keys["Releases"].split()
    scope = frozenset(keys.get("Scope", "").split())
    return Series(name, releases, keys.get("Convention"), scope, keys["Summary"], patches)


def all_series() -> dict[str, Series]:
    found = (read(path) for path in sorted(PATCHES.rglob("series")))
    return {series.name: series for series in found}


def named(name: str) -> Series:
    if series := all_series().get(name):
        return series
    raise Refusal(f"There is no series {name}; there are {', '.join(all_series())}.")


def choices(release: str) -> str:
    """The series for a release, as words."""
    known = all_series().values()
    if names := [series.name for series in known if series.fits(release)]:
        return f"for {release} there is {', '.join(names)}"
    releases = sorted({r for series in known for r in series.releases}, key=lambda r: int(r[2:]))
    return f"there is none for {release}, only for {', '.join(releases)}"


def default(release: str) -> Series:
    """The one series for a release, where there is one and no choice."""
    fitting = [series for series in all_series().values() if series.fits(release)]
    if len(fitting) != 1:
        raise Refusal(f"Name one with --series: {choices(release)}.")
    return fitting[0]


def files_of(*patches: Path) -> list[str]:
    """The files that patches change or add."""
    text = "\n".join(patch.read_text() for patch in patches)
    named = r"^(?:--- a/|\+\+\+ b/|rename from |rename to |diff --git a/\S+ b/)(.*)$"
    return list(dict.fromkeys(re.findall(named, text, re.MULTILINE)))


def files_added(patch: Path) -> list[str]:
    return re.findall(r"^--- /dev/null\n\+\+\+ b/(.*)$", patch.read_text(), re.MULTILINE)


def ran(command: Sequence[object], **how: Any) -> subprocess.CompletedProcess[str]:
    words = list(map(str, command))
    try:
        return subprocess.run(words, capture_output=True, text=True, **how)
    except FileNotFoundError:
        raise Refusal(f"There is no {words[0]} on PATH: install it.") from None


def output_of(command: Sequence[object], refusal: str, errors: str = "", **how: Any) -> str:
    """The output of a command; if it fails, a refusal with its last errors, or the
    first that match a pattern."""
    result = ran(command, **how)
    if result.returncode:
        lines = [line for line in result.stderr.splitlines() if re.search(errors, line)]
        raise Refusal("\n".join([f"{refusal}:", *(lines[:6] if errors else lines[-6:])]))
    return result.stdout


def git(source: Path, *arguments: str, **how: Any) -> subprocess.CompletedProcess[str]:
    """Runs git on a folder's own repository, also where a hook or
    `git rebase --exec` names another."""
    theirs = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
    environment = {key: value for key, value in os.environ.items() if key not in theirs}
    environment["GIT_CEILING_DIRECTORIES"] = str(source.resolve().parent)
    return ran(["git", *arguments], cwd=source, env=environment, **how)


def release_of(source: Path) -> str:
    """The release a tree says it is, as 2.13.0; refuses what is no PyTorch tree."""
    if not (source / YAML).is_file() or not (source / "version.txt").is_file():
        raise Refusal(f"{source} is no PyTorch source tree: it has no {YAML} or no version.txt.")
    if found := re.match(r"\d+\.\d+\.\d+", (source / "version.txt").read_text()):
        return found.group()
    raise Refusal(f"{source}/version.txt does not begin with a release.")


def refused(source: Path, patches: Sequence[Path], *how: str) -> str:
    """Why `git apply` does not take patches, whole or not at all; `how` is --check or --reverse."""
    text = "".join(p.read_text() for p in patches)  # of several files git makes several steps
    tried = git(source, "apply", *how, input=text) if text else None
    return tried.stderr.strip() if tried and tried.returncode else ""


def of_the_tree(source: Path) -> list[Series]:
    """The series for its release that a tree has. Under a longer one, which begins with it, a
    series can no longer be undone by itself."""
    mine = [series for series in all_series().values() if series.fits(release_of(source))]
    applied = [s for s in mine if not refused(source, s.patches, "--check", "--reverse")]
    return [s for s in mine if any(a.patches[: len(s.patches)] == s.patches for a in applied)]


def missing(source: Path, series: Series) -> list[Path]:
    """The patches of a series that a tree lacks; refuses, with what to
    do, where they do not apply."""
    release, has = release_of(source), of_the_tree(source)
    if not series.fits(release):
        raise Refusal(f"{series.name} is for {series.span}, and {source} is {release}.")
    if series in has:
        longer = [
            s.name
            for s in has
            if len(s.patches) > len(series.patches) and series.patches[0] in s.patches
        ]
        within = f" (in {longer[0]})" if longer else ""
        raise Refusal(f"{source} has {series.name} already{within}.")
    rest = [p for p in series.patches if not any(p in s.patches for s in has)]
    if error := refused(source, rest, "--check"):
        mine = {*files_of(*rest)}
        if beside := [
            s.name
            for s in has
            if mine & {*files_of(*s.patches)} and s.patches[0] not in series.patches
        ]:
            raise Refusal(
                f"{series.name} does not apply beside {beside[0]}, which {source} has: undo that first."
            )
        raise Refusal(f"{series.name} does not apply to {source}: {error.partition(chr(10))[0]}")
    return rest


def states(source: Path) -> dict[str, str]:
    """Maps each series for the release of a tree to: applied, applies (and what it builds on
    there), or why it does not."""
    found, has = {}, of_the_tree(source)
    for series in (s for s in all_series().values() if s.fits(release_of(source))):
        if series in has:
            found[series.name] = "applied"
            continue
        try:
            rest = missing(source, series)
            upgrade = (
                f", {len(rest)} of {len(series.patches)} patches"
                if len(rest) < len(series.patches)
                else ""
            )
            found[series.name] = f"applies{upgrade}"
        except Refusal as refusal:
            found[series.name] = str(refusal)
    return found


def listed(names: Sequence[str]) -> str:
    """The first ten names, and how many more there are."""
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(names[:10]) + more


def in_the_way(tree: Path) -> Iterator[str]:
    """What keeps a tree from being patched with git am, and built."""
    changed = git(tree, "status", "--porcelain", "--untracked-files=no").stdout.splitlines()
    if changed:
        yield f"commit or stash first: {listed([line[3:] for line in changed])}"
    if re.search(r"\s", str(tree.resolve())):
        yield f"a space in {tree.resolve()}, where PyTorch's build would split it: move the checkout"
    compiler = os.environ.get("CXX", "c++").split()[0]
    if gone := [name for name in ("cmake", "ninja", compiler) if not shutil.which(name)]:
        yield f"not on PATH: {', '.join(gone)}"
    found = git(tree, "config", "-f", ".gitmodules", "--get-regexp", r"\.path$").stdout
    paths = [line.split(maxsplit=1)[1] for line in found.splitlines()]
    if empty := [p for p in paths if not ((tree / p).is_dir() and any((tree / p).iterdir()))]:
        yield f"without files: {listed(empty)} (git submodule update --init --recursive)"
    if git(tree, "var", "GIT_COMMITTER_IDENT").returncode:
        yield "git am commits, and git does not know your name: set user.name and user.email"


def check(tree: Path, series: Series) -> str:
    """What applying a series would do, as a sentence; refuses where it cannot be done."""
    patches = missing(tree, series)
    if problems := list(in_the_way(tree)):
        raise Refusal("; ".join(problems) + ".")
    files = files_of(*patches)
    return (
        f"ready: git am would add {len(patches)} commits of {series.name} to {tree} ({release_of(tree)}), which change "
        f"{len(files)} files: {listed(files)}"
    )


def listing(tree: Path) -> Iterator[str]:
    yield f"{release_of(tree)}: {choices(release_of(tree))}"
    if found := states(tree):
        yield from (f"{name:32} {state}" for name, state in found.items())
    else:
        yield "To make a series for it, see docs/upstream/propose.md."


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python lab/series.py", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("tree", nargs="?", type=Path, help="a source tree of PyTorch")
    parser.add_argument("--patches", metavar="SERIES", help="print the files of a series")
    parser.add_argument("--check", metavar="SERIES", help="say whether it can be applied and built")
    options = parser.parse_args(words)
    try:
        if options.check and not options.tree:
            raise Refusal("--check needs a source tree of PyTorch.")
        if options.check:
            print(check(options.tree, named(options.check)))
        elif options.patches:
            series = named(options.patches)
            print(*(missing(options.tree, series) if options.tree else series.patches), sep="\n")
        elif options.tree:
            print(*listing(options.tree), sep="\n")
        else:
            for s in all_series().values():
                print(f"{s.name:32} {s.span:12} {s.summary}")
    except Refusal as refusal:
        print(f"refused: {refusal}", file=sys.stderr)  # standard output may go to git am
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
