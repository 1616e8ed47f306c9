"""The tests that a series brings, as its patches show them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from series import files_of, named


def test_files(patches: Iterable[Path]) -> list[str]:
    names = files_of(*patches)
    return sorted(n for n in names if n.startswith("test/") and n.endswith(".py"))


def new_tests(series: str, skipped: Iterable[str] = ()) -> list[str]:
    """The names of the tests that its patches add or change, but for those that were skipped."""
    patches = [patch for patch in named(series).patches if patch.name not in skipped]
    return sorted({name for patch in patches for name in added(patch.read_text())})


def added(patch: str) -> Iterator[str]:
    """The tests that a patch adds, or changes the body of, as its hunks show them."""
    for hunk in re.split(r"^@@ ", patch, flags=re.MULTILINE)[1:]:
        test = None
        for line in hunk.splitlines()[1:]:
            if found := re.match(r"[+ ] +def (test_\w+)", line):
                test = found[1]
            if test and line.startswith("+"):
                yield test


def operators(patch: str) -> list[str]:
    """The operators that a patch adds to upstream's table of samples, as names of tests have them."""
    found = re.findall(r"^\+ +\w*(?:Op|Func)Info\(\s*[\"']([\w.]+)[\"']", patch, re.MULTILINE)
    return [name.replace(".", "_") for name in found]


def is_generated_from(name: str, test: str) -> bool:
    """Whether upstream generates `test` from the method `name`: it appends the names of the operator, the
    parameters, the device and the dtype."""
    return test == name or test.startswith(f"{name}_")


def is_of(series: str, test: str) -> bool:
    """Whether it brings a test of this name."""
    patches = [patch.read_text() for patch in named(series).patches]
    sampled = {operator for patch in patches for operator in operators(patch)}
    return any(is_generated_from(name, test) for name in new_tests(series)) or any(
        re.fullmatch(rf"test_\w+?_{re.escape(operator)}(_\w+)?", test) for operator in sampled
    )
