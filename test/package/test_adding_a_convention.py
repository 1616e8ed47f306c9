"""Adding a convention takes the contract, the list of names, its rules, and the prose: EDITS.

A toy convention is added to a copy of the tree, which is then built and tested against its table.
`interval` is the derivative from inside: x keeps the gradient at a bound, but where lo = hi the
function is constant, and hi gets it. So its rules for numbers and for three Tensors are none of the
others'. The rule of three Tensors is written; the others follow from the table.
"""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from codegen.check_rules import check_rules
from oracle import CONVENTIONS, EXACT
from testing.processes import run_checked
from testing.quick_build import build_quickly, copy_to

ROOT = Path(__file__).resolve().parents[2]
TESTS = [f"test/table/test_{name}.py" for name in ("table", "conventions", "gradcheck")]
TESTS += ["test/kernels/test_operator_counts.py"]

# Its column where it differs from `inclusive`: the share of x beside numbers, all shares beside
# Tensors.
COLUMN = {
    ("clamp", "x < lo = hi"): (0, [0, 0, 1]),
    ("clamp", "x = lo = hi"): (0, [0, 0, 1]),
    ("clamp", "x is NaN, lo > hi"): (0, [0, 0, 0]),
    ("clamp", "lo is NaN, hi < x"): (0, [0, 0, 0]),
    **{(name, "x = y"): (None, [1, 0]) for name in ("maximum", "minimum")},
    **{(name, "x or y is NaN"): (None, [0, 0]) for name in ("maximum", "minimum")},
    **{(name, "x and y are NaN"): (None, [0, 0]) for name in ("fmax", "fmin")},
}
EXAMPLES = {
    "clamp(x, 1, 1)": [[0]],
    "maximum(x, tensor(0.))": [[1]],
    "maximum(x, y)": [[1], [0]],
    "maximum(x, x.detach())": [[1]],
    "clamp(x, lo, hi)": [[0], [0], [1]],
}


def contract(text):
    """conventions.yaml with one more column."""
    table = yaml.safe_load(text)
    names = list(table["conventions"].items())
    names.insert(len(EXACT), ("interval", "the derivative from inside; 0 at bounds that are equal"))
    table["conventions"] = dict(names)
    for operator, found in table["operators"].items():
        for row in found["rows"]:
            numbers, tensors = COLUMN.get((operator, row["position"]), (None, None))
            for kind, factors in (("numbers", numbers), ("tensors", tensors)):
                if kind in row:
                    row[kind]["interval"] = row[kind]["inclusive"] if factors is None else factors
    for example in table["examples"]:
        if "inclusive" in example:
            example["interval"] = EXAMPLES.get(example["call"], example["inclusive"])
    return yaml.safe_dump(table, sort_keys=False)


# What each file gets before a place in it; the contract gets a column.
EDITS = {
    "conventions.yaml": None,
    "csrc/clampgrad/gradient.h": (
        "\n// Those that are no derivatives", f" _(interval, {len(CONVENTIONS)})"
    ),
    "csrc/kernels/rules/triples.h": (
        "  } else {\n    static_assert(format == BitFormat::min_norm,",
        """  } else if constexpr (format == BitFormat::interval) {
    const M wide = lt(lo, hi), not_nan = x.not_nan & lo.not_nan & hi.not_nan;
    const M of_lo = wide & lt(x, lo), of_hi = not_nan & (le(hi, lo) | lt(hi, x));
    return Masks{M(wide & le(lo, x) & le(x, hi)), of_lo, of_hi, M(), M(), M()};
""",
    ),
    "docs/conventions.md": (
        "## Exact conventions, case by case", "## `interval`\n\nThe derivative from inside.\n\n"
    ),
}  # fmt: skip


def edited(file):
    text = (ROOT / file).read_text()
    if EDITS[file] is None:
        return contract(text)
    place, addition = EDITS[file]
    assert text.count(place) == 1, place
    return text.replace(place, addition + place)


def test_toy_convention_fits_into_the_files():
    texts = {file: edited(file) for file in EDITS}
    for operator in yaml.safe_load(texts["conventions.yaml"])["operators"].values():
        for row in operator["rows"]:
            for kind in row.keys() & {"numbers", "tensors"}:
                assert row[kind].keys() == {*EXACT, "interval"}


@pytest.mark.slow
@pytest.mark.compiled("the portable implementation needs the contract alone")
def test_toy_convention_builds_and_passes(tmp_path):
    tree, library = tmp_path / "tree", tmp_path / "library"
    copy_to(tree)
    for file in EDITS:
        if file.endswith("triples.h"):
            assert "has no rule" in check_rules(tree, tmp_path / "generated").stderr
        (tree / file).write_text(edited(file))
    build_quickly(tree, library)
    shutil.rmtree(tree / "python")  # so that the built package is tested

    paths = os.pathsep.join([str(library), os.environ.get("PYTHONPATH", "")])

    def run(*command, **environment):
        env = os.environ | {"PYTHONPATH": paths} | environment
        return run_checked(sys.executable, *command, cwd=tree, env=env)

    program = "import clampgrad; print(clampgrad.implementation, *clampgrad.EXACT)"
    for portable, implementation in (("0", "compiled"), ("1", "portable")):
        said = run("-c", program, CLAMPGRAD_PORTABLE=portable).split()
        assert said[0] == implementation and "interval" in said
    run("examples/demo.py", "--out", str(tmp_path / "out"))
    out = run("-m", "pytest", "-q", "-k", "interval", "-p", "no:cacheprovider", *TESTS)
    assert int(re.search(r"(\d+) passed", out)[1]) > 50
