"""A rule whose functions do not fit together, or do not fit conventions.yaml, does not compile."""

import re
import shutil
from pathlib import Path

import pytest

from codegen.check_rules import check_rules
from testing.cases import slow_after

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).resolve().parents[2]
TABLE = "conventions.yaml"
NUMBERS, PAIRS, TRIPLES = (f"csrc/kernels/rules/{n}.h" for n in ("numbers", "pairs", "triples"))
# What is broken: one of the functions that must agree, or the table. And for which convention and
# how many arguments the compiler says so.
BROKEN = {
    "bits of numbers": (NUMBERS, "(at.pass ^ shared) | at.quarter", "at.pass ^ shared", "half, 1"),
    "descent": (NUMBERS, "(above & lowers_x)", "(above & raises_x)", "with_grad, 1"),
    "masks of a pair": (PAIRS, "rule.tie_mask & kOtherBit", "rule.tie_mask != 0", "inclusive, 2"),
    "results": (
        TRIPLES,
        "is_beyond(khi, klo), is_beyond(khi, kx)",
        "is_beyond(khi, kx), is_beyond(khi, klo)",
        "half, 3",
    ),
    "bits of a triple": (
        TRIPLES,
        "bits[2] = M(at.hi | at.halved_hi)",
        "bits[2] = at.hi",
        "joint, 3",
    ),
    "shares of a triple": (TRIPLES, "E::third_of(g)", "half", "min_norm, 3"),
    "what is differentiated": (TRIPLES, "differentiated_mask & kLoBit,", "true,", "min_norm, 3"),
    "the table": (TABLE, "inclusive: [0, 1, 0]", "inclusive: [0, 0, 1]", "inclusive, 3"),
    "a tie that no pair has": (TABLE, "joint: [1/2, 1/2],", "joint: [1, 1],", "joint, 2"),
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    copy = tmp_path_factory.mktemp("rules") / "tree"
    shutil.copytree(ROOT / "csrc", copy / "csrc")
    for file in (TABLE, "derivatives.yaml"):
        shutil.copy(ROOT / file, copy)
    return copy


def test_the_rules_compile(tree):
    found = check_rules(tree, tree / "generated")
    assert not found.returncode, found.stderr


@pytest.mark.parametrize("ties", slow_after(1, ["1/2 1", "0 1", "0 1/2", "1 0", "1 1/4"]))
def test_a_column_of_numbers_needs_no_code(ties, tree):
    """Whatever x gets at a bound, and where both bounds equal it."""
    tie, both = ties.split()
    ties = dict.fromkeys(("x = lo < hi", "lo < hi = x", "x = lo", "x = hi"), tie)
    text = (ROOT / TABLE).read_text()
    for position, part in (ties | {"x = lo = hi": both}).items():
        row = rf"(position: {position}\n.*\n.*\n +numbers: .*joint: )[^,]*"
        text, changed = re.subn(row, rf"\g<1>{part}", text)
        assert changed == 1
    (tree / TABLE).write_text(text)
    try:
        found = check_rules(tree, tree / "generated")
    finally:
        shutil.copy(ROOT / TABLE, tree)
    assert not found.returncode, found.stderr


@pytest.mark.parametrize("what", slow_after(2, reversed(BROKEN)))
def test_a_wrong_pair_does_not_compile(what, tree):
    file, was, becomes, named = BROKEN[what]
    text = (tree / file).read_text()
    assert was in text, "the code that is broken has changed"
    (tree / file).write_text(text.replace(was, becomes))
    try:
        found = check_rules(tree, tree / "generated")
    finally:
        (tree / file).write_text(text)
    assert found.returncode
    lines = re.findall(rf"AssertAgrees<clampgrad::Gradient::{named}, (\d+)>", found.stderr)
    assert "contradicts conventions.yaml" in found.stderr and lines
    rows = (ROOT / TABLE).read_text().splitlines()
    assert all("- position:" in rows[int(line) - 1] for line in lines)
