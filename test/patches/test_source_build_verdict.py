"""What the build's script makes of a whole run: the committed record holds, and no single change of it does.

The rehearsal on a stub (test_source_build.py) cannot end well, because its torch stays stock. So the verdict gets the
record of a real run here, in the form that the script keeps: docs/source_build.json says every result of stock, and
what differs from that in the other states.
"""

import copy
import json
import re
import sys
from collections import Counter
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
PUBLISHED = json.loads((ROOT / "docs" / "source_build.json").read_text())
STRICT, JOINT = PUBLISHED["series"]
FINE = ("ok", "skipped", "expected failure")
UFUNCS, JIT = "test_binary_ufuncs.py", "test_jit.py"
CLAMP = "TestBinaryUfuncsCPU.test_clamp_scalar_subgradient_cpu_float32"
TRANSFORMS = "TestBinaryUfuncsCPU.test_clamp_scalar_subgradient_transforms_cpu"


def of_stock(file):
    """The results of one file, and causes: which test has which is not published, and plays no part."""
    results = {
        f"{case}.{test}": result
        for case, by in file["results"].items()
        for result, tests in by.items()
        for test in tests.split()
    }
    bad = [test for test, result in results.items() if result not in FINE]
    skipped = [test for test, result in results.items() if result == "skipped"]
    causes = dict(zip(bad, Counter(file["causes"]).elements()))
    causes |= zip(skipped, Counter(file["skipped"]).elements())
    return {"results": results, "causes": causes, "crashes": file["crashes"]}


def record():
    """As record.json holds it."""
    data = copy.deepcopy(PUBLISHED)
    states = data["states"]
    stock = {name: of_stock(f) for name, f in states["stock"]["tests"]["files"].items()}
    for steps in states.values():
        tests = steps["tests"]
        files = copy.deepcopy(stock)
        for name, run in tests["files"].items():
            files.setdefault(name, {"results": {}, "causes": {}})["crashes"] = run["crashes"]
        for where, _, after in tests.get("differences", []):
            file, _, test = where.partition(": ")
            files[file]["results"][test] = after
            if after == "not there":
                del files[file]["results"][test]
        for where, why, _ in tests.get("not run", []):
            file, _, test = where.partition(": ")
            files[file]["causes"][test] = why
        tests["files"] = files
    controls = states["stock"]["controls"]["files"]
    for key, results in controls.items():
        controls[key] = {"results": results, "causes": {}, "error": ""}
    return data


@pytest.fixture
def asked(tool):
    """What the script finds to fail in a record, and tells of it."""

    def asked(data):
        record = tool("record").Record(Path(), data)
        failures = tool("verdict").judge(record, data["series"])
        return failures, tool("report").told(record, failures)

    return asked


def test_the_committed_run_holds(asked, tool):
    """It is of one run, and the record here is that of the run: published, it is the committed one."""
    failures, told = asked(record())
    published = tool("report").published(tool("record").Record(Path(), record()))
    published = json.loads(json.dumps(published))
    assert failures == [] and told.splitlines()[-2] == "All of it holds."
    assert "does not hold" not in told and "All was asked." in told
    assert PUBLISHED["start"] < PUBLISHED["end"] and PUBLISHED["starts"] == 1
    assert PUBLISHED["from nothing"] is True and re.fullmatch("[0-9a-f]{16}", PUBLISHED["proofs"])
    assert list(PUBLISHED["states"]) == ["stock", STRICT, JOINT, "undone"]
    for state, steps in PUBLISHED["states"].items():
        assert PUBLISHED["proved"][state].items() <= published["proved"][state].items()
        again = published["states"][state]["tests"]
        for key in ("differences", "other causes", "not run"):
            assert again.get(key) == steps["tests"].get(key)
        for name, file in steps["tests"]["files"].items():
            assert file.items() <= again["files"][name].items()


def changed(data, *places_and_values):
    """Each place is the keys from the states down. None removes what is there."""
    for (*keys, last), value in places_and_values:
        found = data["states"]
        for key in keys:
            found = found[key]
        found[last] = value
        if value is None:
            del found[last]
    return data


def of_file(state, file, *keys):
    return state, "tests", "files", file, *keys


def control(*keys):
    return "stock", "controls", "files", f"{STRICT}: test/{UFUNCS}", *keys


def first(result):
    """A test of stock with that result."""
    found = of_stock(PUBLISHED["states"]["stock"]["tests"]["files"][JIT])["results"]
    return next(test for test, its in found.items() if its == result)


SOME, BROKEN = first("ok"), first("error")
TIES = ("clamp(0, 0, 0) of Tensors", "clamp(0, 0, 1) of Tensors", "maximum(0, 0) of Tensors")
# What changes, to what, and what is said.
CHANGES = {
    "gradients": ((STRICT, "gradients", "failures"), ["at [0]"], f"{STRICT}: at [0]"),
    "gradients of stock": (("stock", "gradients", "failures"), ["clamp: at"], "stock: clamp: at"),
    "points": ((STRICT, "gradients", "as verify counts them"), 7, "7 points changed; in wheels, verify counted"),
    "a test fails": (of_file(JOINT, JIT, "results", SOME), "failed", f"{SOME} was ok and is failed"),
    "a test is skipped": (of_file(JOINT, JIT, "results", SOME), "skipped", "was ok and is skipped"),
    "a test is gone": (of_file(JOINT, JIT, "results", SOME), None, "was ok and is not there"),
    "a test fails, undone": (of_file("undone", JIT, "results", SOME), "error", "undone: test_jit.py"),
    "a new test that is not the series'": (of_file(JOINT, UFUNCS, "results", "T.test_x"), "ok", "was not there and is ok"),
    "a brought test fails": (of_file(STRICT, UFUNCS, "results", CLAMP), "failed", "which it brings, is failed"),
    "a brought test breaks off": (of_file(JOINT, UFUNCS, "results", CLAMP), "error", "which it brings, is error"),
    "a brought test is skipped": (of_file(STRICT, UFUNCS, "results", CLAMP), "skipped", "which it brings, is skipped"),
    "a brought test is not there": (of_file(STRICT, UFUNCS, "results", TRANSFORMS), None, "transforms, which it brings, was not run"),
    "a brought test stays": (of_file("undone", UFUNCS, "results", CLAMP), "ok", "was not there and is ok"),
    "a file is gone": (of_file(JOINT, JIT), None, "was ok and is not there"),
    "another cause": (of_file(STRICT, JIT, "causes", BROKEN), "E: of the patch", "has another cause: was"),
    "a crash": (of_file(STRICT, JIT, "crashes"), {SOME: 2}, "ended the process 2 times"),
    "a control passes": (control("results", CLAMP), "ok", f"{CLAMP} does not fail without it, but is ok"),
    "a control breaks off": (control("results", CLAMP), "error", "does not fail without it, but is error"),
    "a control is skipped": (control("results", TRANSFORMS), "skipped", "transforms was not run without it"),
    "no control": (control("results"), {}, "was not run without it"),
    "the controls end early": (control("error"), "ImportError", f"{UFUNCS}: ImportError"),
    "the tests do not apply": (("stock", "controls", "skipped", STRICT), ["0002-tests.patch"], "none of its tests applies to this tree"),
    "the survey": ((JOINT, "package", "survey"), 1.0, "the survey measures 1.0"),
} | {
    f"{call}, {how}": ((STRICT, "package", how, "inclusive", call), [7.0], f"{call}, inclusive {how}: [7.0], not [")
    for call in TIES for how in ("pinned", "by name")
} | {
    f"{who}, {state}": ((state, "package", "patched", who), says, f"the {who} says of this torch that it is {'' if says else 'not '}patched")
    for who in ("audit", "info", "survey") for state, says in (("stock", "is patched"), (JOINT, ""), ("undone", "is patched"))
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_every_single_change_of_the_run_is_said(asked, change):
    place, value, says = CHANGES[change]
    failures, told = asked(changed(record(), (place, value)))
    assert any(says in line for line in failures), failures
    assert "what does not hold:" in told and "of it holds" not in told


def test_what_is_no_failure(asked):
    """One crash, which may be chance; and a test that is skipped for the reason for which stock skips it."""
    mine = of_file(STRICT, UFUNCS)
    crash = of_file(STRICT, JIT, "crashes"), {SOME: 1}
    skipped = [((*run, "results", CLAMP), "skipped") for run in (mine, control())]
    reasons = [((*run, "causes", CLAMP), "no CUDA") for run in (mine, control())]
    failures, told = asked(changed(record(), crash, *skipped, *reasons))
    assert failures == [] and f"{SOME} ended the process 1 times" in told
    assert f"    not run: {UFUNCS}: {CLAMP}: no CUDA\n" in told
    other = (*control("causes"), CLAMP), "another reason"
    failures, _ = asked(changed(record(), *skipped, *reasons, other))
    assert [f.split(", ", 1)[1] for f in failures] == ["which it brings, is skipped: no CUDA"]


NAME = SOME.rpartition(".")[2]


@pytest.mark.parametrize("result, patterns, says", [
    ("failed", [NAME], []),
    ("failed", [f"{NAME[:-1]}*"], []),
    ("error", [NAME], ["was ok and is error", f"{JIT}:{NAME}"]),
    ("ok", [NAME], [f"{JIT}:{NAME}"]),
    ("failed", [NAME[:-1]], ["was ok and is failed", f"{JIT}:{NAME[:-1]}"]),  # of a whole name
    ("failed", [NAME, "test_nothing*"], [f"{JIT}:test_nothing*"]),
])  # fmt: skip
def test_what_a_series_says_must_fail_must(asked, tool, monkeypatch, result, patterns, says):
    """Every pattern of it."""
    verdict = tool("verdict")
    named = verdict.named
    fails = {f"{JIT}:{pattern}" for pattern in patterns}
    for_this = {STRICT: replace(named(STRICT), fails=fails)}
    monkeypatch.setattr(verdict, "named", lambda name: for_this.get(name) or named(name))
    failures, _ = asked(changed(record(), (of_file(STRICT, JIT, "results", SOME), result)))
    assert len(failures) == len(says) and all(map(str.endswith, failures, says)), failures


@pytest.mark.parametrize("less", ["quick", "times"])
def test_what_was_not_asked_does_not_count_as_all_of_it(asked, less):
    data = record() | {"quick": less == "quick"}
    if less == "times":
        del data["states"]["undone"]["times"]
    failures, told = asked(data)
    assert failures == [] and "All that was asked holds." in told
    assert re.search(r"Not asked: .*--(quick|rounds 0)", told)


def test_the_exit_code_is_that_of_the_verdict(tool, monkeypatch, capsys):
    """Where something fails: test_source_build.py."""
    spec = spec_from_file_location("script", ROOT / "tools/source_build/__main__.py")
    tool("building")  # the folder is on the path
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    data = record()
    for module, names in (
        (script.processes, "interrupt_on_signals"), (script, "lock outlook"),
        (script.proofs, "gradients package judge_gradients"), (script.upstream, "tests controls"),
        (script.timing, "keep times"), (script.ready, "check"), (script.Place, "arrive"),
    ):  # fmt: skip
        for name in names.split():
            monkeypatch.setattr(module, name, lambda *_, **__: None)
    monkeypatch.setattr(script.Record, "of", lambda *_: script.Record(Path(), data))
    command = ["build_pytorch.sh", ".", *data["series"], "--out", "/dev/null"]
    monkeypatch.setattr(sys, "argv", command)
    assert script.main() == 0 and "All of it holds." in capsys.readouterr().out
