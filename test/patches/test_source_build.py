"""tools/build_pytorch.sh from its first step to its last, on a stub of a tree in place of PyTorch's.

The stub's build prints what a build prints, and brings the torch of this environment. So the tree is
patched and the torch never is: the script has to notice just that.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest
import torch

from clampgrad.patches.apply import apply
from clampgrad.patches.tree import YAML
from patches.test_patches_apply import MINE, commit, git, tree_of, write

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tools" / "build_pytorch.sh"
SERIES = next(s.name for s in MINE if not s.claim.unchanged)
PROPOSALS = [s.name for s in MINE if s.claim.unchanged]
FOLDER = ROOT / "tools" / "source_build"
TORCH = ("torch", "torchgen", "functorch")

SETUP = """
import os, setuptools, sys, sysconfig
if "editable_wheel" in sys.argv:  # pip calls this file for other things too
    exec(os.environ.get("STUB_BUILD", ""))
    print("[1/2] Building CXX object caffe2/Functions.cpp.o")
    print("[2/2] Linking CXX shared library lib/libtorch_cpu.so")
    # torch itself is a folder of links in the checkout, with a version of its own.
    purelib, site = sysconfig.get_path("purelib"), os.path.join(os.getcwd(), "build", "site")
    folder = os.path.join(site, "torch")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(purelib, "stub.pth"), "w") as file:
        print(site, os.getcwd(), sep="\\n", file=file)  # as scikit-build-core does: `tools` is PyTorch's then
    links = {{os.path.join(purelib, os.path.basename(path)): path for path in {paths!r}}}
    links |= {{os.path.join(folder, name): os.path.join({torch!r}, name) for name in os.listdir({torch!r})}}
    for link, path in links.items():
        os.path.lexists(link) or os.symlink(path, link)
    os.remove(os.path.join(folder, "version.py"))
    with open(os.path.join(folder, "version.py"), "w") as file:
        file.write(open(os.path.join({torch!r}, "version.py")).read())
        print("__version__ =", repr(os.environ["PYTORCH_BUILD_VERSION"]), file=file)
setuptools.setup(name="stub", version="0", py_modules=[])  # named torch, it would replace the linked one
"""

TEST = """
import os, unittest
exec(os.environ.get("STUB_TEST", ""))

class Test(unittest.TestCase):
    def test_clamp(self): pass
    def test_maximum_skipped(self): self.skipTest("a reason")
    def test_fmax_fails(self): self.assertTrue({passes})
unittest.main()
"""


def environment(folder):
    """One with everything of this environment but torch, and what brings that."""
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    held_back = []
    for path in Path(torch.__file__).parents[1].iterdir():
        if path.name.startswith("__"):
            continue
        if re.match(rf"({'|'.join(TORCH)})(-.*)?$", path.name):
            held_back.append(str(path))
        elif not path.name.startswith(("clampgrad", "_clampgrad")):
            (site / path.name).symlink_to(path)
    return folder / "bin" / "python", held_back


@pytest.fixture(scope="module")
def stub(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stub")
    python, torchs = environment(folder / "environment")
    tree = folder / "pytorch"
    tree.mkdir()
    tree_of(tree)
    (own,) = (path for path in torchs if path.endswith("/torch"))
    torchs.remove(own)
    write(tree, "setup.py", SETUP.format(paths=torchs, torch=own))
    write(tree, "requirements.txt", "numpy # for torch\n\npyyaml>=5\n")
    write(tree, "tools/__init__.py", "")
    names = ("test_autograd", "test_jit", "test_ops_gradients", "test_ops_fwd_gradients")
    for name in (*names, "test_binary_ufuncs"):
        write(tree, f"test/{name}.py", TEST.format(passes=True))
    commit(tree)
    return tree, python


def build(stub, *arguments, **more):
    tree, python = stub
    own = {"PYTHON": str(python), "CLAMPGRAD_PORTABLE": "1", "MAX_JOBS": "2", "USE_CUDA": "0"}
    variables = own | more
    return subprocess.run(
        [SCRIPT, tree, SERIES, *arguments, "--quick"],
        env=os.environ | variables,
        capture_output=True,
        text=True,
    )


def record_file(stub):
    return stub[0] / "build" / "clampgrad" / "record.json"


def record(stub):
    return json.loads(record_file(stub).read_text())


def forget(stub, step):
    """As if the run had ended before a step of stock's, and nothing had been built."""
    found = record(stub)
    found["states"]["stock"].pop(step, None)
    found["built"] = None
    record_file(stub).write_text(json.dumps(found))


@pytest.fixture(scope="module")
def first(stub):
    return build(stub, "--rounds", "0", "--out", str(stub[0] / "out" / "record.json"))


@pytest.fixture
def whole(stub, first):
    """A run from the first step to the last. A test may change its record."""
    before = record_file(stub).read_text()
    yield first
    record_file(stub).write_text(before)


def test_what_is_in_the_way_is_said_at_once(stub):
    tree, _ = stub
    (tree / "requirements.txt").write_text("-r requirements-build.txt\nno-such-package\n")
    write(tree, ".gitmodules", '[submodule "x"]\n\tpath = third_party/x\n\turl = x\n')
    (tree / "requirements-build.txt").write_text("no-such-backend>=1\n")
    more = {"CXX": "no-such-compiler", "USE_CUDA": "1", "CUDA_HOME": "/nowhere"}
    done = build(stub, "--check", PATH=f"{stub[1].parent}:/usr/bin:/bin", **more)
    git(tree, "checkout", "requirements.txt")
    (tree / ".gitmodules").unlink()
    (tree / "requirements-build.txt").unlink()
    assert done.returncode == 2
    missing = ("no-such-package", "no-such-backend", "no-such-compiler", "no nvcc")
    for part in (*missing, "third_party/x", "submodule update"):
        assert part in done.stderr


def test_changed_files_are_named(stub):
    tree, _ = stub
    (tree / "version.txt").write_text((tree / "version.txt").read_text() + "\n")
    done = build(stub, "--check")
    git(tree, "checkout", "version.txt")
    assert done.returncode == 2 and "version.txt" in done.stderr


def test_a_series_that_is_in_the_tree_is_refused(stub):
    apply(stub[0], SERIES, check=False, reverse=False)
    done = build(stub, "--check")
    apply(stub[0], SERIES, check=False, reverse=True)
    assert done.returncode == 2 and f"{SERIES} is in the tree" in done.stderr


def test_another_torch_is_not_replaced(stub):
    done = build(stub, "--check", PYTHON=sys.executable)
    assert done.returncode == 2 and "an environment of its own" in done.stderr


def test_every_step_runs_and_a_torch_that_stays_stock_is_noticed(stub, whole):
    assert whole.returncode == 1, whole.stdout + whole.stderr
    found = record(stub)
    assert set(found["states"]) == {"stock", SERIES, "undone"}
    steps = {"build", "gradients", "package", "tests"}
    assert all(steps <= set(state) for state in found["states"].values())
    assert found["states"]["stock"]["build"]["steps"] == 2
    failures = whole.stdout.split("what does not hold:")[1]
    assert f"{SERIES}: no gradient changed" in failures
    assert "undone: " not in failures
    published = json.loads((stub[0] / "out" / "record.json").read_text())
    assert published["starts"] == 1 and published["from nothing"] is True
    assert published["start"] < published["end"] and len(published["proofs"]) == 16
    assert published["not asked"] == whole.stdout.split("Not asked: ")[1].split(".\n")[0].split(
        ", "
    )
    assert len(published["not asked"]) == 2
    assert published["proved"][SERIES]["points that changed, as in wheels"].startswith("not asked")
    holds = {"gradients": "holds", "upstream's tests": "holds", "clampgrad on this torch": "holds"}
    assert published["proved"]["undone"] == holds
    assert "no gradient changed" in published["proved"][SERIES]["gradients"]
    assert published["states"]["undone"]["tests"]["differences"] == []
    of_jit = published["states"]["stock"]["tests"]["files"]["test_jit.py"]
    assert of_jit["results"] == {
        "Test": {"ok": "test_clamp test_fmax_fails", "skipped": "test_maximum_skipped"}
    }
    assert of_jit["skipped"] == {"a reason": 1}


def test_the_tree_is_as_before(stub, whole):
    status = subprocess.run(["git", "diff", "HEAD"], cwd=stub[0], capture_output=True, text=True)
    assert status.stdout == ""


def test_the_results_of_upstreams_tests(stub, whole):
    (file,) = {json.dumps(f) for f in record(stub)["states"]["stock"]["tests"]["files"].values()}
    results = {k.partition(".")[2]: v for k, v in json.loads(file)["results"].items()}
    assert results["test_clamp"] == "ok" and results["test_fmax_fails"] == "ok"
    assert results["test_maximum_skipped"] == "skipped"


def test_what_is_done_is_not_done_again(stub, whole):
    before = record(stub)
    again = build(stub, "--rounds", "0")
    assert again.stdout.count("done before") == 10 and record(stub) == before


def test_other_flags_begin_anew_and_only_when_something_is_done(stub, whole):
    before = record_file(stub).read_text()
    other = build(stub, "--rounds", "0", "--check", BUILD_TEST="1")
    assert record_file(stub).read_text() == before
    assert (
        other.returncode == 2 and "an environment of its own" in other.stderr
    )  # as if never begun


def test_a_checked_out_series_is_applied_again(stub, whole):
    """The tree says what is in it, whatever the record says."""
    found = record(stub)
    del found["states"][SERIES]["tests"]
    found["built"] = [SERIES]  # as if it had ended there, and somebody had restored the files
    record_file(stub).write_text(json.dumps(found))
    again = build(stub, "--rounds", "0")
    assert again.returncode == 1 and f"{SERIES}: no gradient changed" in again.stdout


def test_an_edit_beside_the_series_is_seen(stub, whole):
    apply(stub[0], SERIES, check=False, reverse=False)
    with (stub[0] / YAML).open("a") as file:
        print("# mine", file=file)
    done = build(stub, "--check")
    git(stub[0], "checkout", ".")
    assert done.returncode == 2 and f"commit or stash first: {YAML}" in done.stderr


def test_what_other_proofs_found_is_asked_again(stub, whole):
    found = record(stub)
    found["proofs"] = "other"
    record_file(stub).write_text(json.dumps(found))
    again = build(stub, "--rounds", "0")
    assert "==> stock: tests\n" in again.stdout and "==> stock: build" not in again.stdout


def test_other_patches_are_built_again(stub, whole):
    found = record(stub)
    found["patches"][SERIES] = "of another text"
    record_file(stub).write_text(json.dumps(found))
    again = build(stub, "--rounds", "0")
    for step in (f"{SERIES}: tests", "undone: tests", "stock: controls"):
        assert f"==> {step}\n" in again.stdout
    assert "==> stock: tests: done before" in again.stdout


def test_a_full_run_after_a_quick_one_measures_again(stub, whole):
    checked = build(stub, "--check")  # reads the record, and changes nothing
    assert checked.returncode == 0 and record(stub)["quick"]
    code = (
        "from pathlib import Path; from record import Record; from series import Tree;"
        f"r = Record.of(Tree(Path({str(stub[0])!r})), [{SERIES!r}], {record(stub)['flags']!r}, False);"
        "print(r.data['quick'], [s for s in r.states if 'gradients' in r.states[s]])"
    )
    done = subprocess.check_output([stub[1], "-c", code], cwd=FOLDER, text=True)
    assert done == "False []\n"


def test_interrupted_it_goes_on(stub, whole):
    found = record(stub)
    del found["states"][SERIES]["tests"], found["states"]["undone"]
    record_file(stub).write_text(json.dumps(found))
    again = build(stub, "--rounds", "0")
    assert again.returncode == 1 and f"==> {SERIES}: tests\n" in again.stdout
    assert "==> stock: tests: done before" in again.stdout
    assert set(record(stub)["states"]) == {"stock", SERIES, "undone"}


@pytest.mark.skipif(not PROPOSALS, reason="the proposals are for another release")
@pytest.mark.parametrize("name", PROPOSALS)
def test_a_proposal_is_built_and_recorded_as_any_series(stub, whole, tmp_path, name):
    """The torch that stays stock neither saves what it says nor has its operators."""
    out = tmp_path / "record.json"
    build(stub, name, "--rounds", "0", "--out", str(out))
    found = json.loads(out.read_text())
    assert found["states"][name].keys() == found["states"][SERIES].keys()
    proved = found["proved"][name]
    assert all(" saves self, not result" in f or "nothing calls " in f for f in proved["gradients"])
    assert proved["gradients"] and proved["its tests fail without it"].startswith("not asked")


def test_fewer_series_than_before_leave_what_was_built(tmp_path):
    """The tree is that of the last run's end, and is not built again."""
    tree_of(tmp_path)
    code = f"""
import pathlib, sys
from record import Record
from series import Tree
tree = Tree(pathlib.Path(sys.argv[1]))
first = Record.of(tree, [{SERIES!r}, "v2.13.0/strict"], {{}}, False)
done = {{"seconds": 1}}
first.states.update({{"stock": {{"build": done, "controls": done}}, "undone": {{"build": done, "tests": done}}}})
first.save()
print({{state: list(steps) for state, steps in Record.of(tree, [{SERIES!r}], {{}}, False).states.items()}})
"""
    assert answer(code, tmp_path) == "{'stock': ['build'], 'undone': ['build']}"


def test_a_test_that_fails_afterwards_is_named(stub, whole):
    found = record(stub)
    found["states"][SERIES]["tests"]["files"]["test_jit.py"]["results"]["Test.test_clamp"] = (
        "failed"
    )
    record_file(stub).write_text(json.dumps(found))
    again = build(stub, "--rounds", "0")
    assert f"{SERIES}: test_jit.py: Test.test_clamp was ok and is failed" in again.stdout


def test_the_files_that_are_done_are_not_run_again(stub, whole):
    forget(stub, "tests")
    code = "if 'test_ops_fwd' in __file__: raise SystemError('interrupted')"
    interrupted = build(stub, "--rounds", "0", STUB_TEST=code)
    tests = record(stub)["states"]["stock"]["tests"]
    assert interrupted.returncode == 2 and "seconds" not in tests
    assert "test_ops_fwd_gradients.py" not in tests["files"]
    found = record(stub)
    found["states"]["stock"]["tests"]["files"]["test_autograd.py"]["results"]["mark"] = "ok"
    record_file(stub).write_text(json.dumps(found))
    again = build(stub, "--rounds", "0")
    assert "==> stock: tests\n" in again.stdout
    files = record(stub)["states"]["stock"]["tests"]["files"]
    assert files["test_autograd.py"]["results"]["mark"] == "ok" and len(files) == 5


CONTROLS = """
import brought, verdict
from pathlib import Path
from types import SimpleNamespace as Of
class Patch(Of):
    def read_text(self): return "".join(f"@@ -1 +1 @@\\n+    def test_{{n}}(self):\\n" for n in self.names)
mine = Of(claim=Of(unchanged={unchanged}), patches=[Patch(name="1.patch", names={names!r}), Patch(name="2.patch", names=())])
verdict.named = brought.named = lambda name: mine
run = {{"results": {{f"T.test_{{t}}": r for t, r in {results!r}.items()}}, "error": ""}}
found = {{"files": {{"mine: test/f.py": run}}, "skipped": {{"mine": {skipped!r}}}}}
said = verdict.controls(Of(found=lambda *_: found), "mine")
print(said if isinstance(said, str) else "\\n".join(said))
"""
ONE_FAILS = {"one_cpu": "failed", "others": "ok"}


@pytest.mark.parametrize(
    ("names", "results", "says"),
    [
        (("one",), ONE_FAILS, ""),
        (("one",), ONE_FAILS | {"one_cuda": "skipped"}, ""),
        (("one",), {"one_cpu": "skipped"}, "test_one was not run without it"),
        (("one", "two"), ONE_FAILS, "test_two was not run without it"),
        (
            ("one", "two"),
            ONE_FAILS | {"two": "ok"},
            "T.test_two does not fail without it, but is ok",
        ),
        (
            ("one", "two"),
            ONE_FAILS | {"two": "error"},
            "T.test_two does not fail without it, but is error",
        ),
        ((), {}, "brings no tests"),
    ],
)
def test_every_test_that_a_series_brings_must_fail_without_it(names, results, says):
    code = CONTROLS.format(unchanged=False, names=names, results=results, skipped=[])
    assert answer(code) == says


@pytest.mark.parametrize(
    ("unchanged", "skipped", "says"),
    [(True, [], "not asked"), (False, ["1.patch"], "none of its tests applies to this tree")],
)
def test_a_series_whose_tests_are_not_asked_says_so(unchanged, skipped, says):
    code = CONTROLS.format(unchanged=unchanged, names=("one",), results={}, skipped=skipped)
    assert answer(code).startswith(says)


def test_the_names_that_upstream_generates_are_known():
    patch = (
        "@@ -1 +1,3 @@\n+    def test_new(self, device, dtype, op):\n"
        '+        OpInfo("special.soft_clamp",\n'
    )
    code = f"""
import brought
from types import SimpleNamespace
brought.named = lambda name: SimpleNamespace(
    patches=[SimpleNamespace(name="1.patch", read_text=lambda: {patch!r})])
for name in ("new_clamp_min_cpu_float64", "new_bounds_2_cuda", "new", "newer", "old_cpu",
             "fn_grad_special_soft_clamp_cpu_float64", "fn_grad_soft_clamp_cpu"):
    print(name, brought.is_of("mine", "test_" + name))
"""
    known = {line.split()[0] for line in answer(code).splitlines() if line.endswith("True")}
    generated = {"new_clamp_min_cpu_float64", "new_bounds_2_cuda"}
    assert known == generated | {"new", "fn_grad_special_soft_clamp_cpu_float64"}


@pytest.mark.parametrize(
    ("after", "says"),
    [("failed", ""), ("error", "was ok and is error"), ("ok", "none of the tests fails that must")],
)
@pytest.mark.parametrize("pattern", ["test_tie_*", "test_tie_cpu_float32", "tie", "test_*_float64"])
def test_what_a_series_says_must_fail_must(after, says, pattern):
    """A pattern is of a whole name."""
    if pattern in ("tie", "test_*_float64"):
        says = "none of the tests fails that must"
    code = f"""
import verdict
from types import SimpleNamespace as Of
def run(result):
    results = {{"T.test_tie_cpu_float32": result}}
    return {{"files": {{"f.py": {{"results": results, "crashes": {{}}}}}}}}
runs = {{"stock": run("ok"), "mine": run({after!r}), "undone": run("ok")}}
verdict.named = lambda name: Of(fails=("f.py:{pattern}",))
verdict.new_tests = lambda *_: []
verdict.is_of = lambda *_: False
record = Of(found=lambda state, step: runs.get(state) if step == "tests" else None)
print(*verdict.tests(record, "mine"), sep="\\n")
"""
    said = answer(code)
    assert says in said if says else said == ""


def test_every_pattern_of_a_series_must_be_used():
    code = f"""{JUDGED}
verdict.named = lambda name: Of(fails=("f.py:test_a", "f.py:test_b*"))
runs = {{"stock": run(results={{"T.test_a": "ok"}}), "mine": run(results={{"T.test_a": "failed"}})}}
record = Of(found=lambda state, step: runs.get(state) if step == "tests" else None)
print(*verdict.tests(record, "mine"))
"""
    assert answer(code) == "none of the tests fails that must, as its series says: f.py:test_b*"


def test_a_file_that_was_run_on_stock_alone_differs():
    code = f"""{JUDGED}
runs = {{"stock": run(results={{"T.test_a": "ok"}}), "undone": {{"files": {{}}}}}}
record = Of(found=lambda state, step: runs.get(state) if step == "tests" else None)
print(*verdict.tests(record, "undone"))
"""
    assert answer(code) == "f.py: T.test_a was ok and is not there"


EARLY = """
main = unittest.main
def early():
    main(exit=False)
    raise RuntimeError("in the middle")
unittest.main = early
"""
ANOTHER = "import torch; torch.__version__ = '2.7.0'"


@pytest.mark.parametrize(
    ("code", "word", "error"),
    [
        ("import no_such_module", "ran no test", "no_such_module"),
        (EARLY, "ended early", "in the middle"),
        (ANOTHER, "ended early", "another torch answers"),
        ("unittest.TestCase.setUp = lambda self: 1 / 0", "ran no test", ""),
        ("unittest.TestCase.setUp = lambda self: self.fail()", "none of test/", "passes on stock"),
    ],
)
def test_a_file_that_breaks_off_is_refused(stub, whole, code, word, error):
    forget(stub, "tests")
    done = build(stub, "--rounds", "0", STUB_TEST=code)
    assert done.returncode == 2 and word in done.stderr and error in done.stderr


CRASH = """
import os, pathlib
def setUp(self):
    if self.id().endswith("clamp"):
        with open({file!r}, "a") as file:
            print(file=file)
        pathlib.Path({file!r}).stat().st_size > {times} or os.abort()
unittest.TestCase.setUp = setUp
"""


def results_of(stub, tmp_path, code, longest=1200):
    """What the script finds in a test file of the stub's that begins with some code."""
    out = tmp_path / "out.json"
    program = f"import sys, tests; tests.LONGEST = {longest}; tests.main()"
    command = [sys.executable, "-c", program, out, stub[0] / "test" / "test_jit.py"]
    path = f"{FOLDER}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    environment = os.environ | {"STUB_TEST": code, "PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    return (json.loads(out.read_text()) if out.exists() else None), done.stdout + done.stderr


OTHERS = {"Test.test_fmax_fails": "ok", "Test.test_maximum_skipped": "skipped"}


@pytest.mark.parametrize(("times", "result"), [(1, "ok"), (9, "crashed")])
def test_a_test_that_ends_the_process_is_tried_again(stub, tmp_path, times, result):
    """test_profiler_propagation of PyTorch does so now and then."""
    code = CRASH.format(file=str(tmp_path / "crashes"), times=times)
    found, _ = results_of(stub, tmp_path, code)
    assert found["crashes"] == {"Test.test_clamp": min(times, 3)}
    assert found["results"] == OTHERS | {"Test.test_clamp": result}


CRASHING_CLASS = """
class First(unittest.TestCase):
    def test_a(self): pass
class Second(unittest.TestCase):
    def test_b(self): pass
    @classmethod
    def {method}(cls): os.abort()
"""


@pytest.mark.parametrize(
    ("method", "result"), [("setUpClass", {}), ("tearDownClass", {"Second.test_b": "ok"})]
)
def test_a_class_that_ends_the_process_is_named(stub, tmp_path, method, result):
    """Not the test before it, whose result stands; and the tests of other classes run."""
    found, _ = results_of(stub, tmp_path, CRASHING_CLASS.format(method=method))
    place = f"{method} of Second"
    assert found["crashes"] == {place: 3}
    rest = OTHERS | {"First.test_a": "ok", "Test.test_clamp": "ok"}
    assert found["results"] == rest | result | {place: "crashed"}


def test_a_file_whose_import_ends_the_process_is_refused(stub, tmp_path):
    found, said = results_of(stub, tmp_path, "os.abort()")
    assert found is None and "ended with -6: import" in said


HANGING = """
unittest.TextTestRunner.resultclass.write.__func__.__globals__["LONGEST"] = 1
def setUp(self):
    if self.id().endswith("clamp"):
        import time
        time.sleep(60)
unittest.TestCase.setUp = setUp
"""


def test_a_test_that_does_not_end_is_named_and_the_others_run(stub, tmp_path):
    found, said = results_of(stub, tmp_path, HANGING, longest=1)
    assert found["results"] == OTHERS | {"Test.test_clamp": "no end"}
    assert found["crashes"] == {} and "in setUp" in said  # and where it hung


FAILING = """
class GradcheckError(RuntimeError): pass
def wrapped(error):
    try: raise error
    except Exception as cause: raise Exception("caused by a sample") from cause
class Failing(unittest.TestCase):
    def test_value(self): self.assertEqual(1, 0)
    def test_sample(self): wrapped(AssertionError())
    def test_gradcheck(self): raise GradcheckError()
    def test_operator_is_missing(self): wrapped(AttributeError())
    def test_subtest_breaks_off(self):
        with self.subTest(): raise AttributeError()
"""


def test_a_test_that_breaks_off_has_not_failed(stub, tmp_path):
    """Upstream's runner wraps what a test with samples raises."""
    found, _ = results_of(stub, tmp_path, FAILING)
    mine = {k.partition("test_")[2]: v for k, v in found["results"].items() if "Failing" in k}
    failed = dict.fromkeys(("value", "sample", "gradcheck"), "failed")
    assert mine == failed | dict.fromkeys(("operator_is_missing", "subtest_breaks_off"), "error")


JUDGED = """
import verdict
from types import SimpleNamespace as Of
def run(**more):
    results, causes = more.get("results", {}), more.get("causes", {})
    return {"files": {"f.py": {"results": results, "causes": causes, "crashes": {}}}}
verdict.named = lambda name: Of(fails=())
verdict.new_tests = lambda *_: []
verdict.is_of = lambda *_: True
"""


@pytest.mark.parametrize(
    ("control", "says"),
    [
        (None, "f.py: T.test_new, which it brings, is skipped: no CUDA"),
        ("another reason", "f.py: T.test_new, which it brings, is skipped: no CUDA"),
        ("no CUDA", ""),
    ],
)
def test_a_brought_test_that_is_skipped_has_not_run(control, says):
    """Unless stock, which is given the test too, skips it for the same reason; it is named in any case."""
    code = f"""{JUDGED}
skipped = {{"results": {{"T.test_new": "skipped"}}}}
found = {{
    ("stock", "tests"): run(), ("mine", "tests"): run(**skipped, causes={{"T.test_new": "no CUDA"}}),
    ("stock", "controls"): {{
        "files": {{"mine: test/f.py": skipped | {{"causes": {{"T.test_new": {control!r}}}}}}}, "skipped": {{}}
    }},
}}
record = Of(found=lambda *step: found.get(step))
print(verdict.not_run(record, "mine")[0][:2])
print(*verdict.tests(record, "mine"), sep="\\n")
"""
    name, _, failures = answer(code).partition("\n")
    assert name == "('f.py: T.test_new', 'no CUDA')" and failures == says


def test_an_error_of_another_cause_is_said():
    """With the same cause it is as on stock."""
    code = f"""{JUDGED}
error = {{"T.test_a": "error", "T.test_b": "error"}}
found = {{
    "stock": run(results=error, causes={{"T.test_a": "E: x", "T.test_b": "E: x"}}),
    "mine": run(results=error, causes={{"T.test_a": "E: x", "T.test_b": "E: y"}}),
}}
record = Of(found=lambda state, step: found.get(state) if step == "tests" else None)
print(*verdict.tests(record, "mine"), sep="\\n")
"""
    assert answer(code) == "f.py: T.test_b has another cause: was E: x, and is E: y"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("/a/b/libx.so: cannot open", "/home/c/d/libx.so: cannot open", True),
        ("/a/libx.so: cannot open", "/a/liby.so: cannot open", False),
        ("<T at 0x7f1> after 1.5s", "<T at 0x8e2> after 20 s", True),
        ("in /tmp/tmpab12cd_9/x.py:12", "in /tmp/tmpzz00zz_0/x.py:15", True),
        ("line 3, got 4", "line 9, got 4", True),
        ("line 3, got 4", "line 3, got 5", False),
    ],
)
def test_a_cause_is_told_without_what_varies(one, other, same):
    plain = answer(f"import cause; print(cause.plain({one!r}) == cause.plain({other!r}))")
    assert plain == str(same)


def test_the_cause_of_a_test_is_that_of_its_first_exception(stub, tmp_path):
    causes = results_of(stub, tmp_path, FAILING)[0]["causes"]
    assert causes["Failing.test_value"] == "AssertionError: 1 != 0"
    assert causes["Failing.test_sample"] == "AssertionError:"
    assert causes["Test.test_maximum_skipped"] == "a reason" and "Test.test_clamp" not in causes


def test_all_that_asks_is_in_the_digest():
    """Every file of ours that the programs import, and no document."""
    code = """
import pathlib, sys, record, gradients, judged, package, times, verdict, attempt, tests, upstream
files = [pathlib.Path(f) for m in list(sys.modules.values()) if (f := getattr(m, "__file__", None))]
files = {f.resolve() for f in files if f.is_relative_to(record.ROOT) and ".venv" not in f.parts}
print(sorted(str(f) for f in files - {*record.proofs()}), len(files) > 20)
print(any("source_build.json" in f.name for f in record.proofs()))
"""
    assert answer(code) == "[] True\nFalse"


TIES = ("clamp(0, 0, 0) of Tensors", "clamp(0, 0, 1) of Tensors", "maximum(0, 0) of Tensors")


@pytest.mark.parametrize("call", TIES)
@pytest.mark.parametrize("how", ["pinned", "by name"])
def test_a_pin_that_does_not_hold_at_a_tie_is_said(tmp_path, call, how):
    out = tmp_path / "package.json"
    inside("import package; package.main()", out).communicate()
    code = f"""
import json, sys, verdict
from types import SimpleNamespace as Of
found = json.load(open(sys.argv[1]))
record = Of(found=lambda *_: found)
print(list(verdict.package(record, "mine")))
found[{how!r}]["inclusive"][{call!r}][0] = 7
print(*verdict.package(record, "mine"))
"""
    right, wrong = answer(code, out).splitlines()
    assert right == "[]" and wrong.startswith(f"{call}, inclusive {how}: [7")


@pytest.mark.parametrize("who", ["survey", "audit", "info"])
def test_a_patch_that_is_not_said_is_a_failure(who):
    code = f"""
import verdict
from types import SimpleNamespace as Of
def of(slope, **says):
    return {{"own": {{"f": [slope]}}, "pinned": {{}}, "by name": {{}}, "survey": slope,
            "clamp(x, 0, 1) at 0": slope, "patched": says}}
says = dict(survey=True, audit="is patched", info="is patched")
found = {{"stock": of(1.0), "mine": of(0.0, **says | {{{who!r}: None}})}}
print(*verdict.package(Of(found=lambda state, step: found[state]), "mine"))
"""
    assert answer(code) == f"the {who} says of this torch that it is not patched"


def test_a_process_that_dies_is_counted(tmp_path):
    """And the first build of a state stays on record when the state is built again."""
    code = """
import pathlib, sys
from building import Place
from record import Record
def started():
    record = Record(pathlib.Path(sys.argv[1]), old.data if old else {"states": {}})
    return record
old = None
old = started()
try:
    old.step("stock", "tests", lambda: 1 / 0)
except ZeroDivisionError:
    pass
old = started()
old.step("stock", "tests", dict)
old.step("stock", "build", lambda: {"steps": 9})
old.data |= {"built": None}
place = Place(None, old, {}, "stock", None)
place.tree = type("Tree", (), {"applied": lambda self: None})()
place.build, place.built = lambda name: {"steps": 1}, lambda: {}
place.arrive()
states = old.states["stock"]
print(old.data["starts"], states["tests"]["attempts"], states["build"].get("attempts"))
print(states["build"]["steps"], states["build again"]["steps"], old.data["start"] <= old.data["end"])
"""
    lines = answer(code, tmp_path).splitlines()
    assert lines[-2:] == ["2 2 None", "9 1 True"]


def test_nohup_is_heeded():
    code = """
import signal, processes
signal.signal(signal.SIGHUP, signal.SIG_IGN)
processes.interrupt_on_signals()
print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN, signal.getsignal(signal.SIGTERM) == signal.default_int_handler)
"""
    assert answer(code) == "True True"


ENDLESS = "import os, time; os.fork()\nwhile True: print(flush=True); time.sleep(.05)"


def inside(code, *arguments):
    """Python in the folder of the script, which is being run."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    environment = {**os.environ, "CLAMPGRAD_BUILT": "{}"}  # any torch may answer
    return subprocess.Popen(command, cwd=FOLDER, env=environment, stdout=subprocess.PIPE, text=True)


def answer(code, *arguments):
    """What that prints."""
    process = inside(code, *arguments)
    out = process.communicate()[0]
    assert process.returncode == 0
    return out.strip()


def is_still(log):
    written = log.stat().st_size
    time.sleep(0.5)
    return written == log.stat().st_size > 0


def test_a_program_that_does_not_end_is_ended(tmp_path):
    """And what it started: some of upstream's tests start processes."""
    code = f"""
import pathlib, sys, processes
processes.LONGEST = 3
print(processes.run([sys.executable, "-c", {ENDLESS!r}], pathlib.Path(sys.argv[1])))
"""
    log = tmp_path / "log"
    assert "no end after" in inside(code, log).communicate()[0]
    assert is_still(log)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_ends_what_threads_started(tmp_path, number):
    code = f"""
import pathlib, signal, sys, types, processes, upstream
# nohup and & leave these ignored, and the script keeps that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
processes.interrupt_on_signals()
upstream.child = lambda place, name, *_, **__: processes.run([sys.executable, "-c", {ENDLESS!r}], pathlib.Path(sys.argv[1], name))
tree = types.SimpleNamespace(path=pathlib.Path())
record = types.SimpleNamespace(found=lambda *_: None, part=lambda state, step, file, work: work())
record.data = {{"torch": {{"libraries": {{}}}}}}
place = types.SimpleNamespace(environment={{"MAX_JOBS": "2"}}, series=None, state="stock", tree=tree, record=record)
place.step = lambda name, work: work()
upstream.tests(place, [])
"""
    process = inside(code, tmp_path)
    logs = [tmp_path / name for name in ("test_autograd", "test_jit")]
    while not all(log.exists() and log.stat().st_size for log in logs):
        time.sleep(0.1)
    process.send_signal(number)
    process.communicate(timeout=30)
    assert all(map(is_still, logs))


def test_the_times_are_of_the_torch_of_their_state(stub, whole):
    timed = build(stub, "--rounds", "1")
    shutil.rmtree(record_file(stub).parent / "copies")
    times = record(stub)["states"]["undone"]["times"]["microseconds"]
    assert set(times) == {"stock", SERIES} and timed.returncode == 1
    assert all(t > 0 for rounds in times.values() for r in rounds for t in r.values())


def test_the_times_of_another_torch_are_refused(tmp_path):
    program = [sys.executable, FOLDER / "times.py", tmp_path / "out.json", tmp_path]
    more = {"CLAMPGRAD_BUILT": "{}"}
    done = subprocess.run(program, env=os.environ | more, capture_output=True, text=True)
    assert done.returncode and f"not of {tmp_path}: " in done.stderr


def test_what_is_kept_for_the_times_is_all_of_a_torch(tmp_path):
    """Its Python and its libraries, from the one or the two folders that it is in; what is as on stock once."""
    code = """
import pathlib, sys, timing
from types import SimpleNamespace as Of
top = pathlib.Path(sys.argv[1])
source, built = top / "source", top / "built"
def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
write(source / "csrc" / "Module.cpp", "")
write(built / "lib" / "libtorch_cuda.so", "same")
data = {"torch": {"folders": [str(source), str(built)]}}
record = Of(folder=top, data=data, states={}, found=lambda *_: None)
for state, text in (("stock", "before"), ("v2/mine", "after")):
    write(source / "decompositions.py", text)
    timing.keep(Of(record=record, state=state, step=lambda name, work: work()))
"""
    answer(code, tmp_path)
    stock, mine = (tmp_path / "copies" / state / "torch" for state in ("stock", "v2/mine"))
    assert not (mine / "csrc").exists()
    texts = [(copy / "decompositions.py").read_text() for copy in (stock, mine)]
    assert texts == ["before", "after"]
    library = Path("lib", "libtorch_cuda.so")
    assert (stock / library).samefile(mine / library)
    assert not (stock / library).samefile(tmp_path / "built" / library)


def test_a_build_for_cuda_wants_its_compiler_memory_and_disk(tmp_path):
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.parent.mkdir()
    nvcc.touch(0o755)
    code = f"""
import os, flags, machine, ready
flags.clang, flags.lld = lambda: {{"CC": "clang", "CXX": "clang++"}}, lambda compiler: {{}}
for name in ("CC", "CXX", "USE_CUDA", "MAX_JOBS"):
    os.environ.pop(name, None)
os.environ["CUDA_HOME"] = {str(tmp_path)!r}
for cuda in "01":  # nvcc takes few versions of Clang
    os.environ["USE_CUDA"] = cuda
    print(flags.environment(minimal=True).get("CXX"))
machine.cores, machine.memory = lambda: 16, lambda: 30 << 30
with_cuda = {{"CUDA_HOME": {str(tmp_path)!r}}}
for environment in (with_cuda, with_cuda | {{"USE_CUDA": "off"}}):
    print(flags.jobs(environment), ready.gigabytes(environment))
"""
    assert answer(code).splitlines() == ["clang++", "None", "5 40", "15 12"]


def test_a_build_that_fails_shows_its_errors(stub, whole):
    forget(stub, "tests")
    code = "print('x.cpp:1: error: expected'); raise SystemExit(1)"
    done = build(stub, "--rounds", "0", STUB_BUILD=code)
    assert done.returncode == 2 and "x.cpp:1: error: expected" in done.stderr


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("[3/1342] Building CXX object a.cpp.o", (3, 1342)),
        ("  [3/1342] Building CXX object a.cpp.o", (3, 1342)),  # as pip indents it
        ("Downloading [3/7]", (0, 0)),
    ],
)
def test_progress_sees_the_steps(line, shown):
    code = f"import progress; p = progress.Progress(); p.see({line!r}); print(p.done, p.total)"
    assert tuple(map(int, answer(code).split())) == shown


def test_a_library_that_was_built_by_hand_is_seen(stub, whole):
    found = record(stub)
    del found["states"]["undone"]["tests"]
    (library, *_) = found["torch"]["libraries"]
    found["torch"]["libraries"][library][1] += 1
    record_file(stub).write_text(json.dumps(found))
    again = build(stub, "--rounds", "0")
    assert again.returncode == 2 and "changed after it was built here" in again.stderr


@pytest.mark.parametrize("change", ["folders", "version"])
def test_a_torch_that_was_not_built_is_refused(tmp_path, change):
    code = f"""
import building, pathlib, sys, types
from series import Refusal
tree = types.SimpleNamespace(path=pathlib.Path(sys.argv[1]))
(tree.path / "version.txt").write_text("2.13.0a0+Fork_1\\n")
place = building.Place(tree, None, {{}}, "v2/strict-er", "v2/strict-er")
right = {{"folders": [sys.argv[1] + "/torch"], "version": "2.13.0+fork.1.strict.er", "libraries": {{}}}}
place.imported = lambda: right
print(place.built() == right)
place.imported = lambda: right | {{"folders": ["/elsewhere"], "version": "2.13.0+stock"}} | {{
    key: right[key] for key in right if key != {change!r}}}
try:
    place.built()
except Refusal as refusal:
    print(refusal)
"""
    right, refusal = answer(code, tmp_path).splitlines()
    assert right == "True" and "is imported, and" in refusal


@pytest.mark.parametrize("program", ["gradients.py", "package.py", "-S times.py"])
def test_programs_refuse_another_torch(tmp_path, program):
    *flags, file = program.split()
    path = os.pathsep.join(p for p in sys.path if p)
    more = {"CLAMPGRAD_BUILT": json.dumps({"version": "2.13.0+strict"}), "PYTHONPATH": path}
    command = [sys.executable, *flags, FOLDER / file, tmp_path / "out.json", str(tmp_path)]
    done = subprocess.run(command, env=os.environ | more, capture_output=True, text=True)
    assert done.returncode == 1 and "another torch answers" in done.stderr


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"states": []}', '{"states": {"stock": {"build": 1}}}']
)
def test_a_record_that_is_torn_is_refused(stub, whole, text):
    record_file(stub).write_text(text)
    done = build(stub, "--check")
    assert done.returncode == 2 and "record.json is torn" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_error_of_the_script_is_no_verdict(stub, whole):
    found = record(stub)
    del found["states"]["stock"]["package"]["own"]
    record_file(stub).write_text(json.dumps(found))
    done = build(stub, "--rounds", "0")
    assert done.returncode == 2 and "an error of this script" in done.stderr


def test_submodules_that_differ_are_named_with_what_helps(stub):
    module = stub[0] / "third_party" / "module"
    module.mkdir(parents=True)
    git(module, "init")
    write(module, "file", "")
    commit(module)
    git(stub[0], "add", "third_party/module")
    git(stub[0], "commit", "-m", "module")
    write(module, "file", "other")
    commit(module)
    done = build(stub, "--check")
    shutil.rmtree(stub[0] / "third_party")
    git(stub[0], "reset", "--hard", "HEAD~")
    assert done.returncode == 2 and "submodules that differ: third_party/module" in done.stderr
    assert "submodule update --init --recursive" in done.stderr
    assert "changes to commit or stash" not in done.stderr


@pytest.mark.parametrize(("version", "refused"), [("3.22.1", True), ("3.24.0", False), ("", True)])
def test_minimal_wants_a_cmake_that_knows_it(tmp_path, version, refused):
    cmake = tmp_path / "cmake"
    if version:
        cmake.write_text(f"#!/bin/sh\necho cmake version {version}\n")
        cmake.chmod(0o755)
    code = f"""
import os, ready, series, types
ready.cmake.__globals__["shutil"] = types.SimpleNamespace(
    which=lambda name: os.path.exists(p := {str(tmp_path)!r} + "/" + name) and p,
    disk_usage=lambda path: types.SimpleNamespace(free=1 << 60))
tree = types.SimpleNamespace(path=series.ROOT, changed=list, applied=lambda: None)
found = ready.in_the_way(tree, {{"MAX_JOBS": "1"}} | ready.OF_MINIMAL, False)
print([line for line in found if "pip install -U cmake" in line])
"""
    said = answer(code)
    assert (said != "[]") == refused and ("no cmake" in said) == (not version)


@pytest.mark.skipif(not shutil.which("cmake"), reason="no cmake")
def test_that_cmake_included_the_file_is_seen(tmp_path):
    project = "cmake_minimum_required(VERSION 3.24)\nproject(x NONE)\n"
    write(tmp_path, "CMakeLists.txt", project)
    code = """
import building, sys
from pathlib import Path
from types import SimpleNamespace as Of
print(building.Place(Of(path=Path(sys.argv[1])), None, {}, "stock", None).is_minimal())
"""
    for options in ([], [f"-DCMAKE_PROJECT_TOP_LEVEL_INCLUDES={FOLDER / 'minimal.cmake'}"]):
        command = ["cmake", "-S", tmp_path, "-B", tmp_path / "build", *options]
        subprocess.run(command, check=True, capture_output=True)
        assert answer(code, tmp_path) == str(bool(options))


@pytest.mark.parametrize("minimal", [True, False])
def test_a_build_that_ignores_minimal_is_refused(tmp_path, minimal):
    (tmp_path / "version.txt").write_text("2.13.0a0\n")
    code = f"""
import building, flags, pathlib, sys
from series import Refusal
from types import SimpleNamespace as Of
folder = pathlib.Path(sys.argv[1])
building.watched = lambda command, log, see, **how: log.write_text("[1/1] Linking") and 0
record = Of(log=lambda *_: folder / "log", data={{}}, set=lambda **_: None)
environment = flags.OF_MINIMAL if {minimal} else {{"CMAKE_PROJECT_TOP_LEVEL_INCLUDES": "conan.cmake"}}
try:
    print(building.Place(Of(path=folder), record, environment, "stock", None).build("build")["steps"])
except Refusal as refusal:
    print(refusal)
"""
    said = answer(code, tmp_path)
    assert said.startswith("CMake did not include") if minimal else said == "1"


@pytest.mark.parametrize(
    ("groups", "files", "found"),
    [
        (
            "0::/a/b",
            {"a/cpu.max": "150000 100000", "a/b/cpu.max": "max 100000", "a/memory.max": "4096"},
            "2 4096",
        ),
        (
            "2:memory:/m\n1:cpu,cpuacct:/c",
            {
                "cpu,cpuacct/c/cpu.cfs_quota_us": "100000",
                "cpu,cpuacct/c/cpu.cfs_period_us": "100000",
                "memory/m/memory.limit_in_bytes": "8192",
            },
            "1 8192",
        ),
        ("0::/", {"cpu.max": "max 100000", "memory.max": "max"}, "3 65536"),
    ],
)
def test_jobs_are_of_what_the_process_may_use(tmp_path, groups, files, found):
    write(tmp_path, "own", groups + "\n")
    for name, text in files.items():
        write(tmp_path / "groups", name, text + "\n")
    code = f"""
import machine, os, pathlib
machine.OWN, machine.GROUPS = (pathlib.Path({str(tmp_path)!r}, name) for name in ("own", "groups"))
os.sched_getaffinity = lambda process: {{0, 1, 2}}
os.sysconf = lambda name: 256
print(machine.cores(), machine.memory())
"""
    assert answer(code) == found


def test_the_newest_clang_is_taken(tmp_path):
    for suffix, version in (("", 14), ("-15", 15), ("-19", 19)):
        for name in ("clang", "clang++"):
            write(tmp_path, name + suffix, f"#!/bin/sh\necho Debian clang version {version}.0.6\n")
            (tmp_path / (name + suffix)).chmod(0o755)
    code = f"""
import os
os.environ["PATH"] = {str(tmp_path)!r}
import flags
print(flags.clang()["CXX"])
"""
    assert answer(code) == "clang++-19"


def test_stock_must_have_the_gradients_of_its_release(tmp_path):
    code = """
import judged, torch
from tools.verify import checks
found = checks.gradients()["gradients"]
release = torch.__version__.split("+")[0]
print(judged.of_release(found, release))
key = "clamp, numbers, eager"
row = next(i for i, row in enumerate(found[key]) if row[0] == 0 and row[3] == 1)
found[key][row][4] = 0.25
print(*judged.of_release(found, release))
"""
    right, wrong = answer(code).splitlines()
    assert right == "[]" and wrong.startswith("clamp, numbers, eager: at [0,")


def test_what_is_saved_and_called_is_judged():
    code = """
import judged
from types import SimpleNamespace as Of
patch = Of(read_text=lambda: "+- func: clamp_new.Scalar(Tensor self)\\n+- func: other(Tensor self)\\n")
claim = Of(saves=("result",), covers=lambda operator, kind: kind == "numbers")
judged.named = lambda name: Of(claim=claim, patches=[patch])
saved = {"clamp, numbers": ["self"], "clamp_min, numbers": ["result"], "clamp, tensors": ["self"]}
print(*judged.ran({"saved": saved, "called": ["other"]}, "mine"), sep="; ")
"""
    said = "clamp, numbers saves self, not result; nothing calls clamp_new.Scalar, which it adds"
    assert answer(code) == said


def test_files_that_a_series_touches_and_the_tree_lacks_are_named(tmp_path):
    code = """
import pathlib, sys, upstream
from types import SimpleNamespace as Of
upstream.named = lambda name: Of(patches=[pathlib.Path(sys.argv[1], "1.patch")])
write = pathlib.Path(sys.argv[1], "1.patch").write_text
write("--- a/test/old.py\\n+++ b/test/old.py\\n--- /dev/null\\n+++ b/test/new.py\\n")
place = Of(series=None, tree=Of(path=pathlib.Path(sys.argv[1])))
print(upstream.absent(place, ["mine"]), upstream.others(place, ["mine"]))
"""
    assert answer(code, tmp_path) == "['test/old.py'] {}"


def test_the_committed_record_is_of_one_run_and_holds():
    found = json.loads((ROOT / "docs" / "source_build.json").read_text())
    assert found["start"] < found["end"] and found["starts"] == 1 and found["from nothing"] is True
    assert re.fullmatch("[0-9a-f]{16}", found["proofs"]) and not found["quick"]
    assert list(found["states"]) == ["stock", *found["series"], "undone"] == list(found["proved"])
    for state, proofs in found["proved"].items():
        wanted = {"clampgrad on this torch"}
        wanted |= {"gradients", "upstream's tests"} if state != "stock" else set()
        wanted |= {"its tests fail without it"} if state in found["series"] else set()
        assert {name for name in wanted if proofs.get(name) == "holds"} == wanted
        assert all(isinstance(proof, str) for proof in proofs.values())  # what fails is a list
    steps = {"build", "gradients", "package", "tests"}
    assert all(steps <= state.keys() for state in found["states"].values())


def test_the_series_are_one_module_for_all_tools():
    """So what one of them raises, another catches."""
    code = """
import series, sys, tools.series
from tools.verify.text import Refusal
print(Refusal is series.Refusal is tools.series.Refusal, [m for m in sys.modules if m.endswith("patches.series")])
"""
    assert answer(code) == "True ['clampgrad_patches.series']"


def test_a_checkout_with_a_space_is_refused(stub, tmp_path):
    """Parts of PyTorch's build split its path there, and so does what reads /proc/self/maps."""
    spaced = tmp_path / "my checkout"
    shutil.copytree(stub[0], spaced, symlinks=True)
    done = build((spaced, stub[1]), "--check")
    assert done.returncode == 2 and f"a space in {spaced}" in done.stderr
    assert "move the checkout" in done.stderr


def test_make_refuses_a_checkout_with_a_space_too(tmp_path):
    """Before it makes an environment, whose name would be two words."""
    (tmp_path / "my checkout").mkdir()
    (tmp_path / "my checkout" / "requirements.txt").touch()
    command = ["make", "check-build", f"CHECKOUT={tmp_path}/my checkout"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode and "A space in the path of the checkout" in done.stdout


def test_a_second_run_is_refused_before_it_reads_anything(stub, whole):
    """What it read of the tree would be a state of the first run, and its advice would break that."""
    holder = """
import pathlib, runpy, sys, time
main = runpy.run_path("__main__.py", run_name="main")
main["lock"](main["Tree"](pathlib.Path(sys.argv[1])))
print("held", flush=True)
time.sleep(60)
"""
    process = inside(holder, stub[0])
    assert process.stdout.readline() == "held\n"
    apply(stub[0], SERIES, check=False, reverse=False)
    for other in ((), ("--check",)):
        done = build(stub, *other, BUILD_TEST="1")
        assert done.returncode == 2 and "another run is at work" in done.stderr
        assert "undo it" not in done.stderr
    process.kill()
    process.communicate()
    apply(stub[0], SERIES, check=False, reverse=True)


def test_a_folder_that_cannot_be_locked_is_no_other_run(tmp_path):
    tree_of(tmp_path)
    (tmp_path / "build").write_text("a file in place of a folder")
    process = subprocess.run(
        [SCRIPT, tmp_path, SERIES, "--check"],
        env=os.environ | {"PYTHON": sys.executable},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 2 and "cannot be written and locked" in process.stderr


@pytest.mark.parametrize(
    ("library", "together"),
    [("libtorch_cpu.so", True), ("libtorch_cuda.so", False), ("libtorch_hip.so", False)],
)
def test_upstreams_tests_on_a_gpu_run_one_after_another(library, together):
    code = f"""
import pathlib, threading, types, upstream
met, meetings = threading.Barrier(3), []
def of_file(place, file, names):
    try:
        met.wait(3)
        meetings.append(file)
    except threading.BrokenBarrierError:
        pass
upstream.of_file = of_file
upstream.TESTS = {{name: () for name in ("a", "b", "c")}}
record = types.SimpleNamespace(found=lambda *_: None, part=lambda state, step, file, work: work())
record.data = {{"torch": {{"libraries": {{"/torch/lib/libtorch.so": [], "/torch/lib/{library}": []}}}}}}
place = types.SimpleNamespace(environment={{"MAX_JOBS": "3"}}, series=None, state="stock", record=record)
place.tree = types.SimpleNamespace(path=pathlib.Path())
place.step = lambda name, work: work()
upstream.tests(place, [])
print(len(meetings))
"""
    assert answer(code) == ("3" if together else "0")


def test_the_estimate_is_not_of_a_cache(tmp_path):
    """ccache would say how fast a disk is."""
    compiler = tmp_path / "compiler"
    compiler.write_text('#!/bin/sh\n[ -n "$CCACHE_DISABLE" ] && [ -n "$SCCACHE_RECACHE" ]\n')
    compiler.chmod(0o755)
    code = "import os, outlook, sys; os.environ.pop('CCACHE_DISABLE', 0); print(outlook.probe(sys.argv[1]) >= 0)"
    assert answer(code, compiler) == "True"


def test_a_compiler_that_compiles_nothing_is_quoted(tmp_path):
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\necho no such sysroot >&2\nexit 1\n")
    compiler.chmod(0o755)
    code = """
import outlook, sys
from series import Refusal
try: outlook.probe(sys.argv[1])
except Refusal as refusal: print(refusal)
"""
    assert "no such sysroot" in answer(code, compiler)


@pytest.mark.parametrize(("begun", "said"), [(False, True), (True, False)])
def test_that_an_earlier_build_is_built_anew_is_said(tmp_path, begun, said):
    """With --minimal, a developer's own build would become one without features."""
    write(tmp_path, "build/CMakeCache.txt", "")
    code = f"""
import outlook, pathlib, sys
from types import SimpleNamespace as Of
data = {{"tree": {{"release": "2.13.0", "commit": None}}}}
record = Of(folder=pathlib.Path(sys.argv[1], "build", "clampgrad"), data=data, has_begun={begun})
outlook.probe = lambda compiler: 1.0
print("built anew" in outlook.outlook(record, {{"MAX_JOBS": "1"}}, False))
"""
    assert answer(code, tmp_path) == str(said)


@pytest.mark.parametrize(
    "name", ["CI", "CLAMPGRAD_GRADIENT", "PYTHONSAFEPATH", "PYTORCH_JIT", "TORCHDYNAMO_DISABLE"]
)
def test_variables_that_change_what_is_asked_are_not_passed_on(tmp_path, name):
    code = f"""
import os, pathlib, proofs, sys
from types import SimpleNamespace as Of
os.environ[{name!r}] = "1"
def run(command, log, env, cwd):
    print(env.get({name!r}), "PATH" in env)
    pathlib.Path(command[2]).write_text("{{}}")
proofs.processes.run = run
record = Of(log=lambda *_: pathlib.Path(sys.argv[1], "log.log"), data={{"torch": {{}}}}, folder=None)
proofs.child(Of(record=record, state="stock"), "name", "program.py")
"""
    assert answer(code, tmp_path) == "None True"


def test_what_lies_in_our_checkout_is_neither_asked_nor_packed():
    """PyTorch may be cloned there, with an environment beside it: docs/upstream/build.md does so."""
    code = """
import checkout, record
print(all(p.relative_to(checkout.ROOT).parts[0] in (*checkout.PACKAGE, "benchmarks", "test", "docs")
          for p in record.proofs()), len(record.proofs()) > 100)
print(*(name for name in checkout.PACKAGE if not (checkout.ROOT / name).exists()))
"""
    assert answer(code).splitlines() == ["True True"]
    tracked = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    assert "pytorch" not in {name.partition("/")[0] for name in tracked}


def test_programs_that_conda_installs_are_there(tmp_path):
    """It tells pip nothing of cmake and ninja."""
    (tmp_path / "requirements.txt").write_text("cmake>=3.27\nninja\n")
    for name in ("cmake", "ninja"):
        (tmp_path / name).touch(0o755)
    code = """
import importlib.metadata, needed, os, pathlib, sys
def none(name): raise importlib.metadata.PackageNotFoundError(name)
importlib.metadata.version = none
for path in ("/nowhere", sys.argv[1]):
    os.environ["PATH"] = path
    print("cmake" in needed.missing(pathlib.Path(sys.argv[1])), "expecttest" in needed.missing(pathlib.Path(sys.argv[1])))
"""
    assert answer(code, tmp_path).splitlines() == ["True True", "False True"]


def test_other_cores_are_the_same_machine(stub, whole):
    """A container or taskset may leave fewer of them when the run goes on."""
    found = record(stub)
    found["machine"]["cores"] += 1
    record_file(stub).write_text(json.dumps(found))
    again = build(stub, "--rounds", "0")
    assert again.stdout.count("done before") == 10


def test_a_number_of_jobs_is_no_flag():
    code = """
import flags
print(flags.flags({"CMAKE_BUILD_PARALLEL_LEVEL": "8", "CMAKE_BUILD_TYPE": "Release", "HOME": "x"}))
"""
    assert answer(code) == "{'CMAKE_BUILD_TYPE': 'Release'}"


def test_a_file_of_somebody_elses_for_cmake_is_in_the_way_of_minimal():
    code = """
import flags, os, ready, types
from pathlib import Path
tree = types.SimpleNamespace(path=Path(), changed=list, applied=lambda: None)
for value in (None, "conan.cmake"):
    if value:
        os.environ["CMAKE_PROJECT_TOP_LEVEL_INCLUDES"] = value
    for minimal in (True, False):
        environment = flags.environment(minimal)
        found = ready.in_the_way(tree, environment, True)
        print(flags.is_minimal(environment), any("unset it" in line for line in found))
"""
    assert answer(code).splitlines() == ["True False", "False False", "True True", "False False"]


def test_what_a_thread_starts_after_an_interrupt_is_ended(tmp_path):
    code = f"""
import pathlib, sys, processes
processes.end_all()
print(processes.run([sys.executable, "-c", {ENDLESS!r}], pathlib.Path(sys.argv[1])))
"""
    assert inside(code, tmp_path / "log").communicate(timeout=30)[0] == "-9\n"


@pytest.mark.parametrize(
    ("step", "compiled"),
    [
        ("Building CXX object caffe2/CMakeFiles/a.dir/A.cpp.o", ["A.cpp.o"]),
        ("/usr/bin/c++ -DX -o caffe2/CMakeFiles/a.dir/A.cpp.o -c /tree/A.cpp", ["A.cpp.o"]),
        ("/usr/bin/nvcc -x cu -c /tree/B.cu -o caffe2/a.dir/B.cu.o", ["B.cu.o"]),
        ("Building C object a.c.o", []),
        ("Linking CXX shared library lib/libtorch_cpu.so", []),
        ("/usr/bin/c++ -shared -o lib/libtorch_cpu.so caffe2/a.dir/A.cpp.o", []),
    ],
)
def test_what_was_compiled_is_counted_with_verbose_too(step, compiled):
    """Then ninja prints commands."""
    said = answer(f"import progress; print(progress.steps(['[1/2] ' + {step!r}]))")
    assert said == str((1, compiled))
