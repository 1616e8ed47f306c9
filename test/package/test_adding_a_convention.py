"""Adding a convention takes the contract, the list of names, its rules, and the prose.

A toy convention is added to a copy of the tree, which is then built and tested against its table.
`interval` is the derivative from inside: x keeps the gradient at a bound, but where lo = hi the function
is constant, and hi gets it. So its rules for numbers and for three Tensors are none of the others'.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
TESTS = [
    "test/table/test_table.py",
    "test/table/test_conventions.py",
    "test/table/test_gradcheck.py",
    "test/kernels/test_operator_counts.py",
]

# Its column, where it is not that of `inclusive`: what x gets beside numbers, and all beside Tensors.
COLUMN = {
    "clamp": {
        "x < lo = hi": (0, "[0, 0, 1]"),
        "x = lo = hi": (0, "[0, 0, 1]"),
        "x is NaN, lo > hi": (0, "[0, 0, 0]"),
        "lo is NaN, hi < x": (0, "[0, 0, 0]"),
    },
    **{
        name: {"x = y": (None, "[1, 0]"), "x or y is NaN": (None, "[0, 0]")}
        for name in ("maximum", "minimum")
    },
    **{name: {"x and y are NaN": (None, "[0, 0]")} for name in ("fmax", "fmin")},
}
EXAMPLES = {
    "clamp(x, 1, 1)": "[[0]]",
    "maximum(x, tensor(0.))": "[[1]]",
    "maximum(x, y)": "[[1], [0]]",
    "maximum(x, x.detach())": "[[1]]",
    "clamp(x, lo, hi)": "[[0], [0], [1]]",
}


def contract(text):
    """conventions.yaml with one more column."""
    operator = position = call = None
    lines = []
    for line in text.splitlines():
        operator = (re.match(r"  (\w+):", line) or [None, operator])[1]
        position = (re.match(r"    - position: (.*)", line) or [None, position])[1]
        call = (re.match(r"- call: (.*)", line) or [None, call])[1]
        numbers, tensors = COLUMN.get(operator, {}).get(position, (None, None))
        if kind := re.match(r"      (numbers|tensors): .* inclusive: (\[.*?\]|[\d/]+),", line):
            value = kind[2] if tensors is None else numbers if kind[1] == "numbers" else tensors
            line = f"{line[:-1]}, interval: {value}}}"
        lines.append(line)
        if as_inclusive := re.match(r"  inclusive: (\[.*)", line):
            lines.append(f"  interval: {EXAMPLES.get(call, as_inclusive[1])}")
        if line.startswith("  half: as jax"):
            lines.append("  interval: the derivative from inside; 0 where the bounds are equal")
    return "\n".join(lines) + "\n"


def before(place, addition):
    """An edit: `addition` goes before `place`, which stands there once."""

    def edit(text):
        assert text.count(place) == 1, place
        return text.replace(place, addition + place)

    return edit


RULES = {
    "conventions.h": [
        before(
            "    default: // a pseudo-gradient: what is at the bound",
            "    case Gradient::interval:\n      return {kSelf, 0};\n",
        ),
    ],
    "numbers.h": [
        before(
            "  if constexpr (rule == Gradient::half) {\n    const M equal",
            "  if constexpr (rule == Gradient::interval) {\n"
            "    return {M(open & negate<M>(at_lo & at_hi)), M(), M()};\n"
            "  }\n",
        ),
    ],
    "triples.h": [
        before(
            "  } else {\n    static_assert(rule == Gradient::min_norm);",
            "  } else if constexpr (rule == Gradient::interval) {\n"
            "    const M wide = lt(lo, hi), number = x.number & lo.number & hi.number;\n"
            "    return {\n"
            "        M(wide & le(lo, x) & le(x, hi)),\n"
            "        M(wide & lt(x, lo)),\n"
            "        M(number & (le(hi, lo) | lt(hi, x))),\n"
            "        M(),\n"
            "        M(),\n"
            "        M()};\n",
        ),
    ],
}
EDITS = {
    "conventions.yaml": [contract],
    "csrc/clampgrad/gradient.h": [
        lambda text: text.replace("_(half, 3)", "_(half, 3) _(interval, 7)")
    ],
    **{f"csrc/kernels/rules/{name}": edits for name, edits in RULES.items()},
    "docs/conventions.md": [
        before(
            "## `inclusive`, `joint` and `half`", "## `interval`\n\nThe derivative from inside.\n\n"
        )
    ],
}


def edited(file):
    text = (ROOT / file).read_text()
    for edit in EDITS[file]:
        changed = edit(text)
        assert changed != text
        text = changed
    return text


def test_it_takes_few_files():
    """One more for every kind of arguments for which its rule is new."""
    assert len(EDITS) <= 4 + 2
    table = yaml.safe_load(edited("conventions.yaml"))
    for operator in table["operators"].values():
        for row in operator["rows"]:
            for kind in row.keys() & {"numbers", "tensors"}:
                assert row[kind].keys() == {"min_norm", "inclusive", "joint", "half", "interval"}
    for file in EDITS:
        assert edited(file).count("interval") > 0
    assert all((ROOT / test).exists() for test in TESTS)


@pytest.mark.slow
@pytest.mark.compiled("the portable implementation needs the contract alone")
def test_it_holds(tmp_path):
    sys.path.insert(0, str(ROOT / "tools"))
    from quick_build import build_quickly, copy_to

    tree, library = tmp_path / "tree", tmp_path / "library"
    copy_to(tree)
    for file in EDITS:
        (tree / file).write_text(edited(file))
    build_quickly(tree, library)
    shutil.rmtree(tree / "python")  # so that what was built is tested

    def run(*command, **environment):
        paths = os.pathsep.join([str(library), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            [sys.executable, *command],
            cwd=tree,
            env=os.environ | {"PYTHONPATH": paths} | environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
        return done.stdout

    program = "import clampgrad; print(clampgrad.implementation, *clampgrad.EXACT)"
    assert run("-c", program).split()[0] == "compiled"
    for portable in ("0", "1"):
        assert "interval" in run("-c", program, CLAMPGRAD_PORTABLE=portable)
    out = run("-m", "pytest", "-q", "-k", "interval", "-p", "no:cacheprovider", *TESTS)
    assert int(re.search(r"(\d+) passed", out)[1]) > 100
