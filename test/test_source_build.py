"""tools/build_pytorch.sh from its first step to its last, on a stub of a tree in place of PyTorch's.

The stub's build prints what a build prints, and brings the torch of this environment. So the tree is
patched and the torch never is: the script has to notice just that.
"""

import json
import os
import re
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
from test_patches_apply import MINE, commit, git, tree_of, write

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "tools" / "build_pytorch.sh"
SERIES = MINE[0].name
TORCH = ("torch", "torchgen", "functorch")

SETUP = """
import os, setuptools, sys, sysconfig
if "editable_wheel" in sys.argv:  # pip calls this file for other things too
    exec(os.environ.get("STUB_BUILD", ""))
    print("[1/2] Building CXX object caffe2/Functions.cpp.o")
    print("[2/2] Linking CXX shared library lib/libtorch_cpu.so")
    here = sysconfig.get_path("purelib")
    for path in {paths!r}:
        link = os.path.join(here, os.path.basename(path))
        os.path.lexists(link) or os.symlink(path, link)
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
    write(tree, "setup.py", SETUP.format(paths=torchs))
    write(tree, "requirements.txt", "numpy # for torch\n\npyyaml>=5\n")
    for name in ("libtorch_cpu.so", "libtorch_python.so"):
        write(tree, f"torch/lib/{name}", "")
    names = ("test_autograd", "test_jit", "test_ops_gradients", "test_ops_fwd_gradients")
    for name in (*names, "test_binary_ufuncs"):
        write(tree, f"test/{name}.py", TEST.format(passes=True))
    commit(tree)
    return tree, python


def build(stub, *arguments, **more):
    tree, python = stub
    variables = {"PYTHON": str(python), "CLAMPGRAD_PORTABLE": "1", "MAX_JOBS": "2"} | more
    return subprocess.run(
        [SCRIPT, tree, SERIES, "--quick", *arguments],
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
    (tree / "requirements.txt").write_text("numpy\nno-such-package\n")
    write(tree, ".gitmodules", '[submodule "x"]\n\tpath = third_party/x\n\turl = x\n')
    done = build(stub, "--check", CXX="no-such-compiler")
    git(tree, "checkout", "requirements.txt")
    (tree / ".gitmodules").unlink()
    assert done.returncode == 2
    for part in ("no-such-package", "no-such-compiler", "third_party/x", "submodule update"):
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
    steps = {"build", "gradients", "package", "tests", "libraries"}
    assert all(steps <= set(state) for state in found["states"].values())
    assert found["states"]["stock"]["build"]["steps"] == 2
    failures = whole.stdout.split("what does not hold:")[1]
    assert f"{SERIES}: no gradient changed" in failures
    assert "undone: " not in failures
    published = json.loads((stub[0] / "out" / "record.json").read_text())
    assert published["states"]["undone"]["tests"]["differences"] == []
    assert published["states"]["stock"]["tests"]["files"]["test_jit.py"]["results"] == {
        "Test": {"ok": "test_clamp test_fmax_fails", "skipped": "test_maximum_skipped"}
    }


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
    assert again.stdout.count("done before") == 13 and record(stub) == before


def test_other_flags_begin_anew_and_only_when_something_is_done(stub, whole):
    before = record_file(stub).read_text()
    other = build(stub, "--rounds", "0", "--check", USE_CUDA="0")
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
    assert "==> stock: tests\n" in again.stdout and "libraries: done before" in again.stdout


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
    folder = str(ROOT / "tools" / "source_build")
    done = subprocess.check_output([stub[1], "-c", code], cwd=folder, text=True)
    assert done == "False []\n"


def test_interrupted_it_goes_on(stub, whole):
    found = record(stub)
    del found["states"][SERIES]["tests"], found["states"]["undone"]
    record_file(stub).write_text(json.dumps(found))
    again = build(stub, "--rounds", "0")
    assert again.returncode == 1 and f"==> {SERIES}: tests\n" in again.stdout
    assert "==> stock: tests: done before" in again.stdout
    assert set(record(stub)["states"]) == {"stock", SERIES, "undone"}


def test_a_test_that_fails_afterwards_is_named(stub, whole):
    found = record(stub)
    found["states"][SERIES]["tests"]["files"]["test_jit.py"]["results"]["Test.test_clamp"] = (
        "failed"
    )
    record_file(stub).write_text(json.dumps(found))
    again = build(stub, "--rounds", "0")
    assert f"{SERIES}: test_jit.py: Test.test_clamp was ok and is failed" in again.stdout


EARLY = """
main = unittest.main
def early():
    main(exit=False)
    raise RuntimeError("in the middle")
unittest.main = early
"""


@pytest.mark.parametrize(
    ("code", "word", "error"),
    [
        ("import no_such_module", "ran no test", "no_such_module"),
        (EARLY, "ended early", "in the middle"),
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


@pytest.mark.parametrize(("times", "result"), [(1, "ok"), (9, "crashed")])
def test_a_test_that_ends_the_process_is_tried_again(stub, tmp_path, times, result):
    """test_profiler_propagation of PyTorch does so now and then."""
    out, program = tmp_path / "out.json", ROOT / "tools" / "source_build" / "tests.py"
    code = CRASH.format(file=str(tmp_path / "crashes"), times=times)
    command = [sys.executable, program, out, stub[0] / "test" / "test_jit.py"]
    subprocess.run(command, env=os.environ | {"STUB_TEST": code}, check=True)
    found = json.loads(out.read_text())
    assert found["crashes"] == {"Test.test_clamp": min(times, 3)}
    others = {"Test.test_fmax_fails": "ok", "Test.test_maximum_skipped": "skipped"}
    assert found["results"] == others | {"Test.test_clamp": result}


ENDLESS = "import os, time; os.fork()\nwhile True: print(flush=True); time.sleep(.05)"


def inside(code, *arguments):
    """Python in the folder of the script, which is being run."""
    folder = str(ROOT / "tools" / "source_build")
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)


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
import pathlib, sys, types, processes, proofs
processes.interrupt_on_signals()
proofs.child = lambda place, name, *_, **__: processes.run([sys.executable, "-c", {ENDLESS!r}], pathlib.Path(sys.argv[1], name))
place = types.SimpleNamespace(environment={{"MAX_JOBS": "2"}}, series=None, tree=types.SimpleNamespace(path=pathlib.Path()))
place.step = lambda name, work: work()
proofs.upstream_tests(place)
"""
    process = inside(code, tmp_path)
    logs = [tmp_path / name for name in ("test_autograd", "test_jit")]
    while not all(log.exists() and log.stat().st_size for log in logs):
        time.sleep(0.1)
    process.send_signal(number)
    process.communicate(timeout=30)
    assert all(map(is_still, logs))


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
    code = f"import building; p = building.Progress(); p.see({line!r}); print(p.done, p.total)"
    folder = str(ROOT / "tools" / "source_build")
    done = subprocess.check_output([sys.executable, "-c", code], cwd=folder, text=True)
    assert tuple(map(int, done.split())) == shown
