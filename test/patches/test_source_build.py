"""tools/build_pytorch.sh from its first step to its last, on a stub of a tree in place of PyTorch's.

The stub's build prints what a build prints, and brings the torch of this environment. So the tree is
patched and the torch never is: the script has to notice just that.
"""

import fcntl
import json
import os
import re
import shutil
import sys
import venv
from pathlib import Path

import pytest
import torch

from clampgrad.patches.apply import apply
from clampgrad.patches.tree import YAML
from common import run
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
    def test_fmax_fails(self): pass
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
    tree = tree_of(folder / "pytorch")
    (own,) = (path for path in torchs if path.endswith("/torch"))
    torchs.remove(own)
    write(tree, "setup.py", SETUP.format(paths=torchs, torch=own))
    write(tree, "requirements.txt", "numpy # for torch\n\npyyaml>=5\n")
    write(tree, "tools/__init__.py", "")
    for name in ("autograd", "jit", "ops_gradients", "ops_fwd_gradients", "binary_ufuncs"):
        write(tree, f"test/test_{name}.py", TEST)
    commit(tree)
    return tree, python


def build(stub, *arguments, **more):
    tree, python = stub
    own = {"PYTHON": str(python), "CLAMPGRAD_PORTABLE": "1", "MAX_JOBS": "2", "USE_CUDA": "0"}
    return run(SCRIPT, tree, SERIES, *arguments, "--quick", env=os.environ | own | more)


def refused(done, *says):
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert all(part in done.stderr for part in says), done.stderr


# ---- Before it begins ----------------------------------------------------------------------------


@pytest.fixture
def copy(stub, tmp_path):
    return shutil.copytree(stub[0], tmp_path / "my checkout", symlinks=True), stub[1]


def test_what_is_in_the_way_is_said_at_once(copy):
    """Parts of PyTorch's build split its path at a space, and so does what reads /proc/self/maps."""
    tree, python = copy
    (tree / "requirements.txt").write_text("-r requirements-build.txt\nno-such-package\n")
    write(tree, ".gitmodules", '[submodule "x"]\n\tpath = third_party/x\n\turl = x\n')
    (tree / "requirements-build.txt").write_text("no-such-backend>=1\n")
    more = {"CXX": "no-such-compiler", "USE_CUDA": "1", "CUDA_HOME": "/nowhere"}
    done = build(copy, "--check", PATH=f"{python.parent}:/usr/bin:/bin", **more)
    missing = ("no-such-package", "no-such-backend", "no-such-compiler", "no nvcc")
    refused(done, *missing, "third_party/x", "submodule update", f"a space in {tree}")
    refused(done, "commit or stash first: requirements.txt", "move the checkout")


def test_submodules_that_differ_are_named_with_what_helps(copy):
    tree, _ = copy
    module = tree / "third_party" / "module"
    module.mkdir(parents=True)
    git(module, "init")
    for text in ("", "other"):
        write(module, "file", text)
        commit(module)
        if not text:
            commit(tree)
    done = build(copy, "--check")
    refused(done, "submodules that differ: third_party/module", "submodule update --init")
    assert "changes to commit or stash" not in done.stderr


def test_a_series_that_is_in_the_tree_is_refused(copy):
    apply(copy[0], SERIES, check=False, reverse=False)
    refused(build(copy, "--check"), f"{SERIES} is in the tree")


def test_another_torch_is_not_replaced(stub):
    refused(build(stub, "--check", PYTHON=sys.executable), "an environment of its own")


def test_make_refuses_a_checkout_with_a_space_too(tmp_path):
    """Before it makes an environment, whose name would be two words."""
    (tmp_path / "my checkout").mkdir()
    (tmp_path / "my checkout" / "requirements.txt").touch()
    done = run("make", "check-build", f"CHECKOUT={tmp_path}/my checkout", cwd=ROOT)
    assert done.returncode and "A space in the path of the checkout" in done.stdout


# ---- A run from the first step to the last -------------------------------------------------------


def record_file(stub):
    return stub[0] / "build" / "clampgrad" / "record.json"


def record(stub):
    return json.loads(record_file(stub).read_text())


def change(stub, how):
    found = record(stub)
    how(found)
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


def test_every_step_runs_and_a_torch_that_stays_stock_is_noticed(stub, whole):
    assert whole.returncode == 1, whole.stdout + whole.stderr
    assert run("git", "diff", "HEAD", cwd=stub[0]).stdout == ""  # the tree is as before
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
    assert len(published["not asked"]) == 2
    assert f"Not asked: {', '.join(published['not asked'])}.\n" in whole.stdout
    assert published["proved"][SERIES]["points that changed, as in wheels"].startswith("not asked")
    asked = ("gradients", "upstream's tests", "clampgrad on this torch")
    assert published["proved"]["undone"] == dict.fromkeys(asked, "holds")
    assert "no gradient changed" in published["proved"][SERIES]["gradients"]
    assert published["states"]["undone"]["tests"]["differences"] == []
    results = {"ok": "test_clamp test_fmax_fails", "skipped": "test_maximum_skipped"}
    of_stock = published["states"]["stock"]["tests"]["files"]
    assert len(of_stock) == 5
    for file in of_stock.values():
        assert file["results"] == {"Test": results} and file["skipped"] == {"a reason": 1}


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


def test_the_times_are_of_the_torch_of_their_state(stub, whole):
    timed = build(stub, "--rounds", "1")
    shutil.rmtree(record_file(stub).parent / "copies")
    times = record(stub)["states"]["undone"]["times"]["microseconds"]
    assert set(times) == {"stock", SERIES} and timed.returncode == 1
    assert all(t > 0 for rounds in times.values() for r in rounds for t in r.values())


# ---- Another run ---------------------------------------------------------------------------------


def cut_off(found):
    del found["states"][SERIES]["tests"], found["states"]["undone"]


def checked_out(found):
    """As if it had ended there, and somebody had restored the files: the tree says what is in it."""
    del found["states"][SERIES]["tests"]
    found["built"] = [SERIES]


ASKED = "gradients, package, tests"
AGAIN = f"build again, {ASKED}"
# How a record is changed, and the steps that are done again.
CHANGES = {
    # A container or taskset may leave other ones when the run goes on.
    "cores": (lambda found: found["machine"].update(cores=999), {}),
    "proofs": (
        lambda found: found.update(proofs="other"),
        {"stock": f"{ASKED}, controls", SERIES: AGAIN, "undone": AGAIN},
    ),
    "patches": (
        lambda found: found["patches"].update({SERIES: "of another text"}),
        {"stock": "build again, controls", SERIES: f"build, {ASKED}", "undone": AGAIN},
    ),
    "cut off": (cut_off, {SERIES: "build again, tests", "undone": f"build, {ASKED}"}),
    "checked out": (checked_out, {SERIES: "tests", "undone": "build again"}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_done_is_not_done_again(stub, whole, name):
    how, wanted = CHANGES[name]
    change(stub, how)
    before = record(stub)
    again = build(stub, "--rounds", "0")
    said = re.findall("^==> (.*)$", again.stdout, re.MULTILINE)
    expected = {f"{state}: {step}" for state in wanted for step in wanted[state].split(", ")}
    assert {line for line in said if "done before" not in line} == expected
    assert again.returncode == 1 and f"{SERIES}: no gradient changed" in again.stdout
    assert record(stub)["states"].keys() == {"stock", SERIES, "undone"}
    assert wanted or record(stub) == before


def test_other_flags_begin_anew_and_only_when_something_is_done(stub, whole):
    before = record_file(stub).read_text()
    other = build(stub, "--rounds", "0", "--check", BUILD_TEST="1")
    refused(other, "an environment of its own")  # as if never begun
    assert record_file(stub).read_text() == before


def test_an_edit_beside_the_series_is_seen(stub, whole):
    apply(stub[0], SERIES, check=False, reverse=False)
    with (stub[0] / YAML).open("a") as file:
        print("# mine", file=file)
    done = build(stub, "--check")
    git(stub[0], "checkout", ".")
    refused(done, f"commit or stash first: {YAML}")


def test_a_second_run_is_refused_before_it_reads_anything(stub, whole):
    """What it read of the tree would be a state of the first run, and its advice would break that."""
    apply(stub[0], SERIES, check=False, reverse=False)
    with record_file(stub).with_name("lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        others = [build(stub, *check, BUILD_TEST="1") for check in ((), ("--check",))]
    apply(stub[0], SERIES, check=False, reverse=True)
    for done in others:
        refused(done, "another run is at work")
        assert "undo it" not in done.stderr


TORN = ["{", "[]", '{"states": []}', '{"states": {"stock": {"build": 1}}}']


@pytest.mark.parametrize("text", TORN)
def test_a_record_that_is_torn_is_refused(stub, whole, text):
    record_file(stub).write_text(text)
    refused(build(stub, "--check"), "record.json is torn")


def test_an_error_of_the_script_is_no_verdict(stub, whole):
    change(stub, lambda found: found["states"]["stock"]["package"].pop("own"))
    done = build(stub, "--rounds", "0")
    assert done.returncode == 2 and "an error of this script" in done.stderr


def test_a_library_that_was_built_by_hand_is_seen(stub, whole):
    def by_hand(found):
        del found["states"]["undone"]["tests"]
        next(iter(found["torch"]["libraries"].values()))[1] += 1

    change(stub, by_hand)
    refused(build(stub, "--rounds", "0"), "changed after it was built here")


def not_built(found):
    """As if the run had ended before stock was tested."""
    found["states"]["stock"].pop("tests")
    found["built"] = None


EARLY = """
main = unittest.main
def early():
    main(exit=False)
    raise RuntimeError("in the middle")
unittest.main = early
"""
ANOTHER = "import torch; torch.__version__ = '2.7.0'"
BROKEN = "print('x.cpp:1: error: expected'); raise SystemExit(1)"


@pytest.mark.parametrize("program, code, says", [
    ("STUB_BUILD", BROKEN, ["the build failed", "x.cpp:1: error: expected"]),
    ("STUB_TEST", "import no_such_module", ["ran no test", "no_such_module"]),
    ("STUB_TEST", EARLY, ["ended early", "in the middle"]),
    ("STUB_TEST", ANOTHER, ["ended early", "another torch answers"]),
    ("STUB_TEST", "unittest.TestCase.setUp = lambda self: 1 / 0", ["ran no test"]),
    ("STUB_TEST", "unittest.TestCase.setUp = lambda self: self.fail()", ["none of test/", "passes on stock"]),
])  # fmt: skip
def test_what_breaks_off_is_refused(stub, whole, program, code, says):
    change(stub, not_built)
    done = build(stub, "--rounds", "0", **{program: code})
    assert done.returncode == 2 and all(part in done.stderr for part in says)


def test_the_files_that_are_done_are_not_run_again(stub, whole):
    change(stub, not_built)
    code = "if 'test_ops_fwd' in __file__: raise SystemError('interrupted')"
    assert build(stub, "--rounds", "0", STUB_TEST=code).returncode == 2
    tests = record(stub)["states"]["stock"]["tests"]
    assert "seconds" not in tests and "test_ops_fwd_gradients.py" not in tests["files"]

    def mark(found):
        of_stock = found["states"]["stock"]["tests"]["files"]
        of_stock["test_autograd.py"]["results"]["mark"] = "ok"

    change(stub, mark)
    first = record(stub)["states"]["stock"]["build"]
    assert "==> stock: tests\n" in build(stub, "--rounds", "0").stdout
    stock = record(stub)["states"]["stock"]
    files = stock["tests"]["files"]
    assert files["test_autograd.py"]["results"]["mark"] == "ok" and len(files) == 5
    # Attempts are counted, and the first build of a state stays on record.
    assert record(stub)["starts"] == 3 and stock["tests"]["attempts"] == 2
    assert stock["build"] == first and "attempts" not in first and "build again" in stock


# ---- One of upstream's files ---------------------------------------------------------------------

CRASH = """
import os
def setUp(self):
    if self.id().endswith("clamp"):
        with open({file!r}, "a") as file:
            print(file=file, flush=True)
            file.tell() > {times} or os.abort()
unittest.TestCase.setUp = setUp
"""


def results_of(stub, tmp_path, code, longest=1200):
    """What the script finds in a test file of the stub's that begins with some code."""
    out = tmp_path / "out.json"
    program = f"import sys, tests; tests.LONGEST = {longest}; tests.main()"
    path = f"{FOLDER}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    environment = os.environ | {"STUB_TEST": code, "PYTHONPATH": path}
    command = [sys.executable, "-c", program, out, stub[0] / "test" / "test_jit.py"]
    done = run(*command, env=environment)
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


LEFT = {"setUpClass": {}, "tearDownClass": {"Second.test_b": "ok"}}


@pytest.mark.parametrize("method", LEFT)
def test_a_class_that_ends_the_process_is_named(stub, tmp_path, method):
    """Not the test before it, whose result stands; and the tests of other classes run."""
    found, _ = results_of(stub, tmp_path, CRASHING_CLASS.format(method=method))
    place = f"{method} of Second"
    assert found["crashes"] == {place: 3}
    rest = OTHERS | {"First.test_a": "ok", "Test.test_clamp": "ok"}
    assert found["results"] == rest | LEFT[method] | {place: "crashed"}


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
    """Upstream's runner wraps what a test with samples raises; its cause is that of the first exception."""
    found, _ = results_of(stub, tmp_path, FAILING)
    mine = {k.partition("test_")[2]: v for k, v in found["results"].items() if "Failing" in k}
    failed = dict.fromkeys(("value", "sample", "gradcheck"), "failed")
    assert mine == failed | dict.fromkeys(("operator_is_missing", "subtest_breaks_off"), "error")
    causes = found["causes"]
    assert causes["Failing.test_value"] == "AssertionError: 1 != 0"
    assert causes["Failing.test_sample"] == "AssertionError:"
    assert causes["Test.test_maximum_skipped"] == "a reason" and "Test.test_clamp" not in causes
