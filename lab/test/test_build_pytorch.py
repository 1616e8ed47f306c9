"""lab/build_pytorch.py, on a stub in place of PyTorch's tree: its build makes nothing, and the torch of this
environment is asked. So the tree is patched, but the torch never is, which the script has to notice."""

import ast
import math
import sys
from dataclasses import replace
from types import SimpleNamespace as Disk

import pytest
import torch

from lab import build_pytorch
from lab.series import Claim, all_series
from lab.test.test_patches_apply import MINE, RELEASE, commit, git, tree_of, write

# One that changes a gradient and none of the files that TEST stands for.
SERIES = next((s for s in MINE if not s.claim.unchanged and s.name.startswith("v")), None)
pytestmark = pytest.mark.skipif(not SERIES, reason=f"there is no series for torch {RELEASE}")
OTHERS = next(s.name for s in all_series().values() if not s.fits(RELEASE))
TEST = """
import unittest, pytest

class Test(unittest.TestCase):
    def test_clamp(self): assert {}
    @pytest.mark.skip
    def test_maximum(self): pass
"""


@pytest.fixture
def tree(tmp_path):
    tree = tree_of(tmp_path / "pytorch")
    commit(tree, {f"test/{name}": TEST.format(True) for name in build_pytorch.TESTS})
    return tree


@pytest.fixture
def build(tree, monkeypatch, capsys):
    """Runs the command, with all that it needs -> its exit code, what it printed, what it complained of."""
    monkeypatch.setattr(build_pytorch, "BUILD", [sys.executable, "-c", ""])
    monkeypatch.setattr(build_pytorch, "find_spec", lambda module: True)
    monkeypatch.setattr(build_pytorch.shutil, "which", lambda name: name)
    monkeypatch.setattr(build_pytorch.shutil, "disk_usage", lambda _: Disk(free=1 << 40))

    def build(*words):
        monkeypatch.setattr(sys, "argv", ["build_pytorch", str(tree), *words])
        return build_pytorch.main(), *capsys.readouterr()

    return build


def test_what_is_refused(build, tree):
    """Whether a series fits is asked before all else, so submodules, which are missing here too, are not named."""

    def said(name=SERIES.name):
        code, _, said = build(name, "--check")
        assert code == 2
        return said

    write(tree, {"version.txt": f"{RELEASE}\n"})
    assert "Commit or stash first: version.txt" in said()
    commit(tree, {".gitmodules": '[submodule "x"]\n\tpath = third_party/x\n\turl = x\n'})
    assert "without files: third_party/x" in said()
    git(tree, "mv", "test/test_jit.py", "test/test_other.py")
    commit(tree, {})
    assert "test: test_jit.py" in said()
    assert f"{OTHERS} is for" in said(OTHERS) and "third_party" not in said(OTHERS)
    commit(tree, {"tools/autograd/derivatives.yaml": "another text\n"})
    assert f"{SERIES.name} does not apply" in said() and "third_party" not in said()


def test_another_torch_than_the_one_that_was_built(build):
    code, _, said = build(SERIES.name)
    assert code == 2 and f"and {torch.__version__} of" in said
    assert build(SERIES.name, "--check")[0] == 0  # the tree is as it was


@pytest.mark.slow
def test_a_run(build, tree, monkeypatch):
    """Every series is in the tree while its tests run, and changes no gradient of this torch."""
    monkeypatch.setattr(build_pytorch, "build", lambda *_: 1)
    touched = next(f for f in build_pytorch.files_of(SERIES.patches[0]))
    seen = f'len(open("../{touched}").read()) == {len((tree / touched).read_text())}'
    none = "def test_nothing(): import pytest; pytest.skip()\n"
    commit(tree, {"test/test_jit.py": none, "test/test_autograd.py": TEST.format(seen)})
    code, out, _ = build(SERIES.name)
    assert code == 1 and build(SERIES.name, "--check")[0] == 0
    assert f"{SERIES.name}: no gradient changed" in out
    assert "stock: test_jit.py: no test passed ({'skipped': 1})" in out
    changed = [line for line in out.splitlines() if line.endswith(": passed, failure")]
    assert len(changed) == 1 and changed[0].startswith(f"{SERIES.name}: test_autograd.py, ")
    rows = [ast.literal_eval(line) for line in out.splitlines() if line.startswith("{")]
    assert [r["state"] for r in rows] == ["stock", SERIES.name, "undone"]
    assert rows[0]["points"] > 1000 and {r["points that changed"] for r in rows} == {0}
    assert rows[0]["tests"]["test_binary_ufuncs.py"] == {"passed": 1, "skipped": 1}


def test_what_differs_by_name():
    stock = {"test_a.py": {"A::test_1": "passed", "A::test_2": "failure", "A::test_3": "passed"}}
    mine = {"test_a.py": {"A::test_1": "failure", "A::test_2": "failure", "A::test_new": "passed"}}

    def wrong(series):
        lines = build_pytorch.of_tests(stock, mine, series)
        return [line.removeprefix("test_a.py, A::").partition(":")[0] for line in lines]

    assert wrong(None) == ["test_1", "test_3", "test_new"]
    assert wrong(replace(SERIES, fails=())) == ["test_1", "test_3"]
    assert wrong(replace(SERIES, fails=("test_a.py:test_1*",))) == ["test_3"]
    mine = {"test_a.py": {"the process": "ended with -11"}}
    assert "no test passed" in build_pytorch.of_tests(stock, mine, None)[0]


def test_gradients_are_held_to_the_claim():
    """And a form that raises is a failure, whatever is claimed."""
    other = "clamp, numbers, in place"

    def state(slope, raises=False):
        rows = torch.tensor([[0, 0, 1, 1, slope], [math.nan, 0, 1, 1, 0]])
        found = {"clamp, numbers, eager": rows, **({} if raises else {other: rows})}
        return {
            "gradients": found,
            "errors": {other: "TypeError"} if raises else {},
            "scripted": {},
        }

    wrong, joint = build_pytorch.of_gradients, replace(SERIES, claim=Claim("joint"))
    assert wrong(state(1), state(1), None) == [] and wrong(state(1), state(0.5), None)
    assert "no gradient changed" in wrong(state(1), state(1), joint)
    assert wrong(state(1), state(0), joint) == []
    unchanged = replace(SERIES, claim=Claim(unchanged=True))
    for stock, series in ((1, joint), (0, joint), (0, unchanged), (0, None)):
        assert wrong(state(stock), state(0, raises=True), series) == [f"{other}: TypeError"]
    row = build_pytorch.row("x", state(1), state(0) | {"tests": {}, "seconds": 1})
    assert row["points that changed"] == 2
