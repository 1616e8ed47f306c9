"""The check of programs under a pin fails for a pin without effect, and for one with too much."""

import sys

import pytest

import records
from lab.programs import test_programs as programs
from testing.releases import RELEASED

pytestmark = [
    pytest.mark.compiled("the settings name both implementations"),
    pytest.mark.skipif(
        RELEASED != "inclusive", reason="the first release's own gradient is inclusive"
    ),
    pytest.mark.slow,
]

# A program on a library that is there: two lines, of which a pin to `joint` changes the second.
STUB = """
import torch
from digests import step

x = torch.tensor([0.0, 0.5], requires_grad=True)
loss = torch.clamp(x, 0, 1).square().sum() + torch.clamp(x, 0, 1).sum()
step(loss, [x])
"""
JOINT = {"joint": "gradients 0"}


@pytest.fixture
def check(installed, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", installed)
    (tmp_path / "digests.py").write_text((programs.HERE / "digests.py").read_text())

    def check(program=JOINT, text=STUB, settings=("stock", "joint"), **others):
        """The findings and failures of a program under some settings;
        `others` replace some of them."""
        script = tmp_path / "stub.py"
        script.write_text(text)
        chosen = {name: others.get(name, programs.SETTINGS[name]) for name in settings}
        ran = {k: programs.run(script, s, sys.executable, tmp_path) for k, s in chosen.items()}
        findings = {
            k: programs.judge(s, program, ran[k], ran.get(s.beside)) for k, s in chosen.items()
        }
        return findings, [failure for record in findings.values() for failure in record["failures"]]

    return check


def test_what_holds(check):
    settings = ["stock", "inclusive", "joint", "portable inclusive", "portable joint"]
    findings, failures = check(settings=settings)
    assert not failures
    assert findings["inclusive"]["differs first at"] is None
    assert findings["joint"]["differs first at"] == "gradients 0"
    assert findings["inclusive"]["reached"] == findings["joint"]["reached"] == {"clamp": 2}
    assert (findings["joint"]["from"], findings["joint"]["to"]) == ("2.23607", "2")


def test_a_pin_that_does_nothing(check):
    """Neither a process without a pin, nor one with the wrong pin."""
    nothing = programs.Setting(0, "joint", "joint", {"CLAMPGRAD_GRADIENT": ""}, changes="stock")
    assert any("not pinned to joint" in failure for failure in check(joint=nothing)[1])
    other = programs.Setting(0, "joint", "inclusive", changes="stock")
    (failure,) = check(joint=other)[1]
    assert failure == "it differs from stock first at None, and must at 'gradients 0'"


@pytest.mark.parametrize("program, must", [({}, "nowhere"), ({"joint": "loss 0"}, "at 'loss 0'")])
def test_a_difference_that_nobody_has_named(check, program, must):
    (failure,) = check(program)[1]
    assert failure.endswith(f"first at 'gradients 0', and must {must}")


@pytest.mark.parametrize(
    "text, says",
    [
        ("import a_library_that_is_nowhere", "exit code 1: ModuleNotFoundError: No module named"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("", "it printed nothing"),
        ("from digests import show, torch\nfor _ in 0, 1: show('a', torch.ones(1))", "twice"),
    ],
)
def test_a_program_that_does_not_run(check, text, says):
    (failure,) = check({}, text, ["stock"])[1]
    assert says in failure


def test_the_record():
    """records/programs.jsonl is of these programs, as programs.yaml has
    them, and nothing in it failed."""
    rows, known = records.read("programs")["rows"], programs.PROGRAMS
    assert [r["program"] for r in rows] == list(known) == sorted(p.stem for p in scripts())
    for row in rows:
        name, runs = row["program"], row["runs"]
        assert {"stock", "inclusive", "joint"} <= set(runs), name
        assert not any(run["failures"] for run in runs.values()), name
        assert ("joint" in known[name]) == bool(row["clamp"]), name
        assert runs["joint"].get("differs first at") == known[name].get("joint"), name


def scripts():
    not_programs = ("audits", "digests", "program_tables", "test_programs")
    return [p for p in programs.HERE.glob("*.py") if p.stem not in not_programs]


def test_no_program_knows_of_the_pin():
    for script in scripts():
        assert "clampgrad" not in script.read_text(), script.name
