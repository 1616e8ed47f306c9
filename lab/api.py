"""What of Python's public names has changed since the last release, so that a call of it would
break: `nox -s api`. griffe compares the sources.

    python -m lab.api
"""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import griffe

ROOT = Path(__file__).resolve().parent.parent


def promised_paths(package):
    """What docs/releasing.md calls public: where it is imported from, and where it is defined."""
    for module in (package, package["nn"]):
        for name in module.exports:
            yield f"{module.path}.{name}"
            with suppress(griffe.AliasResolutionError):  # what the build writes
                yield module[name].canonical_path


def find_breaks(old, new):
    paths = tuple(f"{path}." for path in promised_paths(old))
    for breakage in griffe.find_breaking_changes(old, new):
        if f"{breakage.obj.path}.".startswith(paths):
            yield breakage.explain(griffe.ExplanationStyle.ONE_LINE)


def main():
    # Of the parent: the tag of this release may be here already.
    words = ("git", "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD^")
    if not subprocess.check_output(("git", "tag", "--list", "v[0-9]*"), cwd=ROOT):
        print("there is no release yet")
        return
    tag = subprocess.check_output(words, cwd=ROOT, text=True).strip()
    where = {"search_paths": [ROOT / "python"], "resolve_aliases": True}
    old = griffe.load_git("clampgrad", ref=tag, repo=ROOT, **where | {"search_paths": ["python"]})
    sys.exit("\n".join(find_breaks(old, griffe.load("clampgrad", **where))) or None)


if __name__ == "__main__":
    main()
