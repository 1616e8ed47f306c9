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
    for name in build_pytorch.TESTS:
        write(tree, f"test/{name}", TEST.format(True))
    commit(tree)
    return tree


@pytest.fixture
def build(tree, monkeypatch, capsys):
    monkeypatch.setattr(build_pytorch, "BUILD", [sys.executable, "-c", ""])
    monkeypatch.setattr(build_pytorch, "find_spec", lambda module: True)
    monkeypatch.setenv("CXX", "true")
    monkeypatch.setattr(build_pytorch.shutil, "which", lambda name: name)
    monkeypatch.setattr(build_pytorch.shutil, "disk_usage", lambda _: Disk(free=1 << 40))

    def build(*words):
        monkeypatch.setattr(sys, "argv", ["build_pytorch", str(tree), *words])
        return build_pytorch.main(), *capsys.readouterr()

    return build


def status(tree):
    return build_pytorch.git(tree, "status", "--porcelain", "--untracked-files=no").stdout


def test_whether_a_series_fits_is_asked_first(build, tree):
    """Before submodules, which are missing here too."""
    write(tree, ".gitmodules", '[submodule "x"]\n\tpath = third_party/x\n\turl = x\n')
    commit(tree)
    code, _, said = build(OTHERS, "--check")
    assert code == 2 and f"{OTHERS} is for" in said and "third_party" not in said
    code, _, said = build(SERIES.name, "--check")
    assert code == 2 and "without files: third_party/x" in said
    write(tree, "tools/autograd/derivatives.yaml", "another text\n")
    commit(tree)
    code, _, said = build(SERIES.name, "--check")
    assert code == 2 and f"{SERIES.name} does not apply" in said and "third_party" not in said


def test_what_is_refused(build, tree):
    assert build(SERIES.name, "--check")[0] == 0
    write(tree, "version.txt", f"{RELEASE}\n")
    code, _, said = build(SERIES.name, "--check")
    assert code == 2 and "Commit or stash first: version.txt" in said
    git(tree, "checkout", ".")
    (tree / "test/test_jit.py").unlink()
    commit(tree)
    assert "not in" in build(SERIES.name, "--check")[2]


def test_another_torch_than_the_one_that_was_built(build, tree):
    code, _, said = build(SERIES.name)
    assert code == 2 and f"and {torch.__version__} of" in said
    assert status(tree) == ""


@pytest.mark.slow
def test_a_run(build, tree, monkeypatch):
    """Every series is in the tree while its tests run, and changes no gradient of this torch."""
    monkeypatch.setattr(build_pytorch, "build", lambda *_: 1)
    write(tree, "test/test_jit.py", "def test_nothing(): import pytest; pytest.skip()\n")
    touched = next(f for f in build_pytorch.files_of(SERIES.patches[0]))
    seen = f'len(open("../{touched}").read()) == {len((tree / touched).read_text())}'
    write(tree, "test/test_autograd.py", TEST.format(seen))
    commit(tree)
    code, out, _ = build(SERIES.name)
    assert code == 1 and status(tree) == ""
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
    wrong = ["test_a.py, A::test_1: passed, failure", "test_a.py, A::test_3: passed, absent"]
    assert build_pytorch.of_tests(stock, mine, replace(SERIES, fails=())) == wrong
    told = replace(SERIES, fails=("test_a.py:test_1*",))
    assert build_pytorch.of_tests(stock, mine, told) == wrong[1:]
    new = "test_a.py, A::test_new: absent, passed"
    assert build_pytorch.of_tests(stock, mine, None) == [*wrong, new]
    crashed = {"test_a.py": {"the process": "ended with -11"}}
    assert "no test passed" in build_pytorch.of_tests(stock, crashed, None)[0]


def test_gradients_are_held_to_the_claim():
    def state(slope, *raising):
        rows = torch.tensor([[0, 0, 1, 1, slope], [math.nan, 0, 1, 1, 0]])
        ways = {f"clamp, numbers, {way}": rows for way in ("eager", "in place")}
        errors = {key: "TypeError" for key in raising}
        kept = {key: rows for key, rows in ways.items() if key not in raising}
        return {"gradients": kept, "errors": errors, "scripted": {}}

    series = replace(SERIES, claim=Claim("joint"))
    assert build_pytorch.of_gradients(state(1), state(1), None) == []
    assert build_pytorch.of_gradients(state(1), state(0.5), None)
    assert "no gradient changed" in build_pytorch.of_gradients(state(1), state(1), series)
    row = build_pytorch.row("x", state(1), state(0) | {"tests": {}, "seconds": 1})
    assert row["points that changed"] == 2
    # A form that raises is a failure whatever is claimed.
    raising, unchanged = "clamp, numbers, in place", replace(SERIES, claim=Claim(unchanged=True))
    assert build_pytorch.of_gradients(state(1), state(0), series) == []
    for stock, claimed in ((1, series), (0, series), (0, unchanged), (0, None)):
        wrong = build_pytorch.of_gradients(state(stock), state(0, raising), claimed)
        assert wrong == [f"{raising}: TypeError"]
