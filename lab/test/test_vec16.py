"""The proposals for at::vec apply to the wheel's headers, their tests of upstream's fail where
they should, and they change no number. All pairs: `python -m lab.vec16 prove`."""

import random
import re

import pytest
import torch

from lab.series import PATCHES
from lab.vec16 import (
    BFLOAT16,
    FLAGS,
    HALF,
    MAXIMUM,
    PROPOSALS,
    compiled,
    headers,
    loops,
    patch_of,
    runs_here,
    upstream_tests,
)
from lab.vec16.__main__ import DTYPES, FUNCTIONS, bounds, compared, proved
from testing.processes import run

TEXTS = [p for name in PROPOSALS for p in sorted((PATCHES / "proposals" / name).glob("*.md"))]


def needs(*instructions):
    missing = [i for i in instructions if not runs_here(i)]
    return pytest.mark.skipif(bool(missing), reason=f"no {missing} or no compiler here")


def changed(folder, *proposals):
    stock = headers(folder / "stock")
    patched = headers(folder / "patched", *proposals)
    files = (path.relative_to(stock) for path in stock.rglob("*.h"))
    return {f.name for f in files if (stock / f).read_bytes() != (patched / f).read_bytes()}


@pytest.mark.parametrize("proposals, files", [
    ([MAXIMUM], {"vec512_bfloat16.h"}),
    ([MAXIMUM, BFLOAT16], {"vec256_bfloat16.h", "vec512_bfloat16.h"}),
    ([HALF], {"vec256_half.h"}),
    (PROPOSALS, {"vec256_bfloat16.h", "vec512_bfloat16.h", "vec256_half.h"}),
])  # fmt: skip
def test_a_proposal_applies_to_the_wheel(tmp_path, proposals, files):
    assert changed(tmp_path, *proposals) == files


@pytest.mark.thorough
@pytest.mark.parametrize("instructions", [pytest.param(i, marks=needs(i)) for i in FLAGS])
@pytest.mark.parametrize("of, applied, wrong", [
    (MAXIMUM, [], ["AVX512"]),
    (MAXIMUM, [MAXIMUM], []),
    (MAXIMUM, PROPOSALS, []),
    (BFLOAT16, [MAXIMUM], []),
    (BFLOAT16, PROPOSALS, []),
])  # fmt: skip
def test_upstreams_tests(tmp_path, instructions, of, applied, wrong):
    """Those that the patches add: of the bug, they fail without its patch."""
    source = tmp_path / "tests.cpp"
    source.write_text("\n".join(upstream_tests(of)))
    own = headers(tmp_path / "headers", *applied)
    done = run(compiled(source, tmp_path / "tests", instructions, own))
    assert done.returncode == (instructions in wrong), done.stdout
    assert ("maximum(nan, 0) is 0 in lane" in done.stdout) == (instructions in wrong)


@pytest.mark.thorough
@needs(*FLAGS)
def test_no_number_changes(tmp_path):
    """Beside some hundred operands, in every function, with denormals flushed or not."""
    sides = {f"stock {i}": loops(tmp_path, i) for i in FLAGS}
    sides |= {f"patched {i}": loops(tmp_path, i, *PROPOSALS) for i in FLAGS}
    special = bounds(torch.bfloat16, 40) + bounds(torch.float16, 40)
    others = {*special, *random.Random(0).sample(range(2**16), 60)}
    rows = [*proved(sides, sorted(others), 40)]
    assert len(rows) == 2 * len(DTYPES) * (1 + 2 * len(FUNCTIONS))
    for row in rows:
        assert bool(row["numbers"]) == (row["side"] == "stock AVX512"), row
        keeps = row["function"] in ("maximum", "minimum") and "patched" in row["side"]
        assert not (keeps and row["payloads"]), row
    # Another function would be noticed, and what is in no vector.
    patched = sides["patched AVX2"]
    assert compared(patched, Other(patched), "maximum", torch.bfloat16, [(0,)])["numbers"]
    with pytest.raises(RuntimeError, match="outside of the vectors"):
        patched.neg(torch.ones(3).half(), [torch.ones(3).half()], 1)


class Other:
    """minimum under the name of maximum."""

    def __init__(self, side):
        self.maximum = side.minimum


def test_bounds_are_distinct_and_have_the_specials():
    for dtype in DTYPES.values():
        bits = bounds(dtype, 600)
        assert len({*bits}) == len(bits) == 600
        values = torch.tensor(bits).to(torch.uint16).view(dtype)
        assert values.isnan().any() and values.isinf().sum() == 2
        assert {0, 0x8000, 1} <= {*bits}


PARTS = {  # of upstream's templates, and where a machine's part is named
    "bug": ["### 🐛 Describe the bug", "### Versions"],
    "feature": [
        "### 🚀 The feature, motivation and pitch",
        "### Alternatives",
        "### Additional context",
    ],
    "request": ["## Issue", "## Summary", "## Checklist", "## BC-breaking?", "## Agent details"],
}


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_text_has_the_parts_of_upstreams_template(text):
    """And nothing that is for whoever sends it: that is in docs/upstream/propose.md."""
    issue = "bug" if text.parent.name == MAXIMUM else "feature"
    parts = PARTS[issue if text.name == "ISSUE.md" else "request"]
    headings = re.findall("^##+ .*", text.read_text(), re.M)
    assert [part for part in headings if part in parts] == parts
    assert not re.search(r"expect to be asked|whoever sends|your own words", text.read_text(), re.I)


def test_a_patch_is_small():
    """Beside its tests, fewer lines than it takes away, or a dozen."""
    for name in PROPOSALS:
        sections = re.split("^diff --git ", patch_of(name).read_text(), flags=re.M)[1:]
        code = "".join(s for s in sections if not s.startswith("a/aten/src/ATen/test"))
        added, removed = (len(re.findall(rf"^\{sign}(?!\{sign})", code, re.M)) for sign in "+-")
        assert added <= max(removed, 12), name
