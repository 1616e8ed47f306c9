"""lab/check_programs.py judges programs under a pin: a pin that does nothing fails, and so does one that does more."""

import sys

import pytest

import records
from common import RELEASE
from lab import check_programs as programs
from lab import program_runs

pytestmark = [
    pytest.mark.compiled("the settings of the runner name both implementations"),
    pytest.mark.skipif(RELEASE > (2, 13), reason="the first release's own gradient is inclusive"),
    pytest.mark.slow,
]

# A program on a library that is there: two lines, of which a pin to `joint` changes the second.
STUB = """
import torch
from digests import step

x = torch.tensor([0.0, 0.5], requires_grad=True)
loss = torch.clamp(x, 0, 1).square().sum() + torch.clamp(x, 0, 1).sum()
loss.backward()
step(loss, [x])
"""
SETTINGS = {s.name: s for s in programs.SETTINGS}


@pytest.fixture
def check(installed, tmp_path, monkeypatch):
    def check(program=None, text=STUB, settings=("stock", "joint"), **others):
        """The failures of a program under some settings, of which `others` stand in for some."""
        (tmp_path / "stub.py").write_text(text)
        (tmp_path / "digests.py").write_text((digests / "digests.py").read_text())
        chosen = [others.get(name, SETTINGS[name]) for name in settings]
        monkeypatch.setattr(programs, "SETTINGS", chosen)
        ran = {s.name: dict(programs.runs(s, sys.executable, ["stub"], tmp_path)) for s in chosen}
        program = {"needs": [], **(program or {})}
        found = programs.judged("stub", program, {k: run["stub"] for k, run in ran.items()})
        return programs.failures([found]), found

    digests = programs.PROGRAMS
    for module in (programs, program_runs):
        monkeypatch.setattr(module, "PROGRAMS", tmp_path)
    monkeypatch.setattr(program_runs, "SHARED", [])
    monkeypatch.setenv("PYTHONPATH", installed)
    return check


def test_what_holds(check):
    settings = ["stock", "inclusive", "joint", "portable inclusive", "portable joint"]
    failures, found = check({"joint": "gradients 0"}, settings=settings)
    assert not failures
    runs = found["runs"]
    assert runs["inclusive"]["differs first at"] is None
    assert runs["joint"]["differs first at"] == "gradients 0"
    assert runs["inclusive"]["reached"] == runs["joint"]["reached"] == {"clamp": 2}
    assert (runs["joint"]["from"], runs["joint"]["to"]) == ("2.23607", "2")


def test_a_pin_that_does_nothing(check):
    """Neither a process without a pin, nor one with the wrong pin."""
    nothing = programs.Setting(0, "joint", "joint", {"CLAMPGRAD_GRADIENT": ""}, changes="stock")
    failures = check({"joint": "gradients 0"}, joint=nothing)[0]
    assert len([f for f in failures if "not pinned to joint" in f]) == 1
    other = programs.Setting(0, "joint", "inclusive", changes="stock")
    (two,) = check({"joint": "gradients 0"}, joint=other)[0]
    assert two == "stub, joint: it differs from stock first at None, and must at 'gradients 0'"


def test_a_difference_that_nobody_has_named(check):
    for program, must in (
        ({}, "nowhere"),
        ({"joint": "loss 0"}, "at 'loss 0'"),
        ({"differs": {"joint": {"at": "loss 0"}}, "joint": "gradients 0"}, "at 'loss 0'"),
    ):
        (failure,) = check(program)[0]
        assert failure.endswith(f"first at 'gradients 0', and must {must}")


CANNOT = {"cannot": {"stock": {"error": "a_library_that_is_nowhere", "because": "not on PyPI"}}}


@pytest.mark.parametrize("program, text, says", [
    ({}, "import a_library_that_is_nowhere", ["exit code 1: ModuleNotFoundError: No module named"]),
    (CANNOT, "import a_library_that_is_nowhere", []),
    (CANNOT, "1 / 0", ["ZeroDivisionError: division by zero"]),
    (CANNOT, STUB, ["it runs, and programs.yaml says that it does not"]),
    ({}, "", ["it printed nothing"]),
])  # fmt: skip
def test_a_program_that_does_not_run(check, program, text, says):
    failures, found = check(program, text, ["stock"])
    assert len(failures) == len(says) and all(s in f for s, f in zip(says, failures)), failures
    assert says or found["runs"]["stock"]["does not run"] == "not on PyPI"


def test_the_record():
    """records/programs.jsonl is of these programs, as programs.yaml has them, and nothing in it failed."""
    rows, named = records.read("programs")["rows"], programs.read()
    assert [r["program"] for r in rows] == list(named) == sorted(p.stem for p in scripts())
    assert len(named) >= 20 and not programs.failures(rows)
    for found in rows:
        name = found["program"]
        assert {"stock", "inclusive", "joint"} <= set(found["runs"]), name
        assert ("joint" in named[name]) == bool(found["clamp"]), name
        assert found["runs"]["joint"].get("differs first at") == named[name].get("joint"), name


def scripts():
    return [p for p in programs.PROGRAMS.glob("*.py") if p.stem != "digests"]


def test_no_program_knows_of_the_pin():
    for script in scripts():
        assert "clampgrad" not in script.read_text(), script.name
