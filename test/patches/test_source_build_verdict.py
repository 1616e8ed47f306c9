"""What the build's script makes of a whole run: the committed record holds, and no single change of it does.

The rehearsal on a stub (test_source_build.py) cannot end well, because its torch stays stock. So the verdict gets the
record of a real run here, in the form that the script keeps: docs/source_build.json says every result of stock, and
what differs from that in the other states.
"""

import copy
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tools" / "source_build"
PUBLISHED = json.loads((ROOT / "docs" / "source_build.json").read_text())
STRICT, JOINT = PUBLISHED["series"]
FINE = ("ok", "skipped", "expected failure")
UFUNCS, JIT = "test_binary_ufuncs.py", "test_jit.py"
CLAMP = "TestBinaryUfuncsCPU.test_clamp_scalar_subgradient_cpu_float32"
CONTROL = f"{STRICT}: test/{UFUNCS}"


def of_stock(file):
    """The results of one file, and the causes: which test has which is not published, and plays no part."""
    results = {
        f"{case}.{test}": result
        for case, by in file["results"].items()
        for result, tests in by.items()
        for test in tests.split()
    }
    causes = {}
    for words, chosen in (
        (file["causes"], lambda r: r not in FINE),
        (file["skipped"], lambda r: r == "skipped"),
    ):
        tests = iter(test for test, result in results.items() if chosen(result))
        causes |= {next(tests): why for why, count in words.items() for _ in range(count)}
    return {"results": results, "causes": causes, "crashes": file["crashes"]}


def record():
    """As record.json holds it."""
    data = copy.deepcopy(PUBLISHED)
    states = data["states"]
    for file in states["stock"]["tests"]["files"].values():
        file.setdefault("skipped", {})  # records from before November 2026 do not say why
    stock = {name: of_stock(f) for name, f in states["stock"]["tests"]["files"].items()}
    for steps in states.values():
        files = copy.deepcopy(stock)
        for name, run in steps["tests"]["files"].items():
            files.setdefault(name, {"results": {}, "causes": {}})["crashes"] = run["crashes"]
        for where, _, after in steps["tests"].get("differences", []):
            file, _, test = where.partition(": ")
            files[file]["results"][test] = after
            if after == "not there":
                del files[file]["results"][test]
        for where, why, _ in steps["tests"].get("not run", []):
            file, _, test = where.partition(": ")
            files[file]["causes"][test] = why
        steps["tests"] = {"not in the tree": []} | steps["tests"] | {"files": files}
    controls = states["stock"]["controls"]
    controls.setdefault("skipped", {name: [] for name in data["series"]})
    controls["files"] = {
        key: {"results": results, "causes": {}, "error": ""}
        for key, results in controls["files"].items()
    }
    return data


ASK = """
import json, report, sys, verdict
from pathlib import Path
from record import Record
found = []
for data in json.load(sys.stdin):
    record = Record(Path(), data)
    failures = verdict.judge(record, data["series"])
    found.append({"failures": failures, "told": report.told(record, failures), "published": report.published(record)})
print(json.dumps(found))
"""


def asked(*records):
    command = [sys.executable, "-c", ASK]
    done = subprocess.run(
        command, cwd=FOLDER, input=json.dumps(records), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_committed_run_holds():
    (found,) = asked(record())
    assert found["failures"] == []
    assert found["told"].splitlines()[-2] == "All of it holds."
    assert "does not hold" not in found["told"] and "All was asked." in found["told"]
    for state, proofs in PUBLISHED["proved"].items():
        assert proofs.items() <= found["published"]["proved"][state].items()


def test_the_record_here_is_that_of_the_run():
    """Published, it is the committed one."""
    (found,) = asked(record())
    for state, steps in PUBLISHED["states"].items():
        again = found["published"]["states"][state]["tests"]
        for key in ("differences", "other causes", "not run"):
            assert again.get(key) == steps["tests"].get(key)
        for name, file in steps["tests"]["files"].items():
            assert file.items() <= again["files"][name].items()


def results(state, file=UFUNCS):
    return f"/states/{state}/tests/files/{file}/results"


def causes(state, file):
    return f"/states/{state}/tests/files/{file}/causes"


def changed(data, place, value):
    """`place` names keys from the top, or a function changes the record itself. None removes."""
    if callable(place):
        place(data)
        return
    keys = [
        k.replace("~", "/")
        for k in place.replace(STRICT, STRICT.replace("/", "~"))
        .replace(JOINT, JOINT.replace("/", "~"))
        .split("/")[1:]
    ]
    for key in keys[:-1]:
        data = data[key]
    if value is None:
        del data[keys[-1]]
    else:
        data[keys[-1]] = value


def without_file(data):
    del data["states"][JOINT]["tests"]["files"][JIT]


def without_brought(data):
    found = data["states"][STRICT]["tests"]["files"][UFUNCS]["results"]
    for test in [t for t in found if "test_clamp_scalar_subgradient_transforms" in t]:
        del found[test]


def another_cause(data):
    found = data["states"][STRICT]["tests"]["files"][JIT]
    test = next(t for t, result in found["results"].items() if result == "error")
    found["causes"][test] = "RuntimeError: of the patch"


def of_another_release(data):
    data["states"]["stock"]["gradients"]["failures"] = ["clamp, numbers, eager: at [0, 0]"]


def of_the_pin(how):
    def change(data):
        data["states"][STRICT]["package"][how]["inclusive"]["maximum(0, 0) of Tensors"] = [1.0, 0.0]

    return change


def of_who(who, state, says):
    def change(data):
        data["states"][state]["package"]["patched"][who] = says

    return change


def of_the_control(result):
    def change(data):
        found = data["states"]["stock"]["controls"]["files"][CONTROL]["results"]
        found.update(dict.fromkeys(found, result)) if result else found.clear()

    return change


def broken_control(data):
    data["states"]["stock"]["controls"]["files"][CONTROL]["error"] = "ImportError"


def counted_otherwise(data):
    data["states"][STRICT]["gradients"]["as verify counts them"] += 1


def passing(state, file):
    """A test of a file that passes on stock."""
    found = record()["states"][state]["tests"]["files"][file]["results"]
    return next(test for test, result in found.items() if result == "ok")


SOME = passing("stock", JIT)
CHANGES = {
    "gradients": (f"/states/{STRICT}/gradients/failures", ["at [0]"], f"{STRICT}: at [0]"),
    "gradients, undone": ("/states/undone/gradients/failures", ["clamp"], "undone: clamp"),
    "gradients of stock": (of_another_release, None, "stock: clamp, numbers, eager: at"),
    "points": (counted_otherwise, None, "points changed; in wheels, verify counted 1124"),
    "a test fails": (f"{results(JOINT, JIT)}/{SOME}", "failed", f"{SOME} was ok and is failed"),
    "a test is skipped": (f"{results(JOINT, JIT)}/{SOME}", "skipped", "was ok and is skipped"),
    "a test is gone": (f"{results(JOINT, JIT)}/{SOME}", None, "was ok and is not there"),
    "a test fails, undone": (f"{results('undone', JIT)}/{SOME}", "error", "undone: test_jit.py"),
    "a new test that is not the series'": (f"{results(JOINT)}/T.test_x", "ok", "was not there and is ok"),
    "a brought test fails": (f"{results(STRICT)}/{CLAMP}", "failed", "which it brings, is failed"),
    "a brought test breaks off": (f"{results(JOINT)}/{CLAMP}", "error", "which it brings, is error"),
    "a brought test is skipped": (f"{results(STRICT)}/{CLAMP}", "skipped", "which it brings, is skipped"),
    "a brought test is not there": (without_brought, None, "transforms, which it brings, was not run"),
    "a brought test stays": (f"{results('undone')}/{CLAMP}", "ok", "was not there and is ok"),
    "a file is gone": (without_file, None, "was ok and is not there"),
    "another cause": (another_cause, None, "has another cause: was"),
    "a crash": (f"/states/{STRICT}/tests/files/{JIT}/crashes", {SOME: 2}, "ended the process 2 times"),
    "a control passes": (of_the_control("ok"), None, "does not fail without it, but is ok"),
    "a control breaks off": (of_the_control("error"), None, "does not fail without it, but is error"),
    "a control is skipped": (of_the_control("skipped"), None, "was not run without it"),
    "no control": (of_the_control(None), None, "was not run without it"),
    "the controls end early": (broken_control, None, f"{CONTROL}: ImportError"),
    "the tests do not apply": (
        f"/states/stock/controls/skipped/{STRICT}",
        ["0002-tests.patch"],
        "none of its tests applies to this tree",
    ),
    "a pin": (of_the_pin("pinned"), None, "inclusive pinned: [1.0, 0.0], not [0.5, 0.5]"),
    "a convention": (of_the_pin("by name"), None, "inclusive by name: [1.0, 0.0], not"),
    "the survey": (f"/states/{JOINT}/package/survey", 1.0, "the survey measures 1.0"),
    "a patch unsaid": (of_who("audit", JOINT, None), None, "that it is not patched"),
    "stock called patched": (of_who("info", "stock", "is patched"), None, "that it is patched"),
    "undone called patched": (of_who("survey", "undone", True), None, "that it is patched"),
}  # fmt: skip


def test_every_single_change_of_the_run_is_said():
    records = []
    for place, value, _ in CHANGES.values():
        records.append(record())
        changed(records[-1], place, value)
    for (name, (_, _, says)), found in zip(CHANGES.items(), asked(*records), strict=True):
        assert any(says in line for line in found["failures"]), (name, found["failures"])
        assert "what does not hold:" in found["told"] and "of it holds" not in found["told"]


def test_one_crash_is_reported_and_no_failure():
    data = record()
    data["states"][STRICT]["tests"]["files"][JIT]["crashes"] = {SOME: 1}
    (found,) = asked(data)
    assert found["failures"] == [] and f"{SOME} ended the process 1 times" in found["told"]


@pytest.mark.parametrize("less", ["quick", "times"])
def test_what_was_not_asked_does_not_count_as_all_of_it(less):
    data = record()
    if less == "quick":
        data["quick"] = True
    else:
        del data["states"]["undone"]["times"]
    (found,) = asked(data)
    assert found["failures"] == [] and "All that was asked holds." in found["told"]
    assert re.search(r"Not asked: .*--(quick|rounds 0)", found["told"])


MAIN = """
import importlib.util, json, sys
from pathlib import Path
spec = importlib.util.spec_from_file_location("script", "__main__.py")
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)
data = json.load(sys.stdin)
nothing = lambda *_, **__: None
for module, names in (
    (script.proofs, "gradients package judge_gradients"), (script.upstream, "tests controls"),
    (script.timing, "keep times"), (script.ready, "check"), (script.Place, "arrive"),
    (script, "lock outlook"), (script.Record, "of"),
):
    for name in names.split():
        setattr(module, name, nothing)
script.Record.of = lambda *_: script.Record(Path(), data)
script.Tree.release = data["tree"]["release"]
sys.argv = ["build_pytorch.sh", ".", *data["series"], "--out", "/dev/null"]
sys.exit(script.main())
"""


@pytest.mark.parametrize("holds", [True, False])
def test_the_exit_code_is_that_of_the_verdict(holds):
    data = record()
    if not holds:
        changed(data, counted_otherwise, None)
    command = [sys.executable, "-c", MAIN]
    done = subprocess.run(
        command, cwd=FOLDER, input=json.dumps(data), capture_output=True, text=True
    )
    assert done.returncode == (0 if holds else 1), done.stderr
    assert ("All of it holds." in done.stdout) == holds
