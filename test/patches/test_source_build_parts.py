"""The parts of tools/build_pytorch.sh by themselves; test_source_build.py runs the whole of it."""

import importlib.metadata
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace as Of
from unittest import mock

import pytest

from common import checked, run
from patches.test_patches_apply import MINE, tree_of, write

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tools" / "source_build"
SERIES = next(s.name for s in MINE if not s.claim.unchanged)


ENV = {**os.environ, "CLAMPGRAD_BUILT": "{}"}  # any torch may answer


def answer(code):
    """What Python prints in the folder of the script."""
    return checked(sys.executable, "-c", code, cwd=FOLDER, env=ENV).strip()


def begun(code, *arguments):
    """A process of it."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, cwd=FOLDER, env=ENV, stdout=subprocess.PIPE, text=True)


def executable(path, text="#!/bin/sh\n"):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


# ---- What is built with what, and where ----------------------------------------------------------


# The groups of a process, their limits, and what these leave of 3 cores and 64 KiB.
LIMITS = {
    "0::/a/b": (
        {"a/cpu.max": "150000 100000", "a/b/cpu.max": "max 1", "a/memory.max": "4096"},
        (2, 4096),
    ),
    "2:memory:/m\n1:cpu:/c": (
        {f"cpu/c/cpu.cfs_{name}_us": "100000" for name in ("quota", "period")}
        | {"memory/m/memory.limit_in_bytes": "8192"},
        (1, 8192),
    ),
    "0::/": ({"cpu.max": "max 100000", "memory.max": "max"}, (3, 65536)),
}


@pytest.mark.parametrize("groups", LIMITS)
def test_jobs_are_of_what_the_process_may_use(tool, monkeypatch, tmp_path, groups):
    files, found = LIMITS[groups]
    write(tmp_path, "own", groups + "\n")
    for name, text in files.items():
        write(tmp_path / "groups", name, text + "\n")
    machine = tool("machine")
    monkeypatch.setattr(machine, "OWN", tmp_path / "own")
    monkeypatch.setattr(machine, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2})
    monkeypatch.setattr(os, "sysconf", lambda name: 256)
    assert (machine.cores(), machine.memory()) == found


def test_a_number_of_jobs_is_no_flag(tool):
    environment = {"CMAKE_BUILD_PARALLEL_LEVEL": "8", "CMAKE_BUILD_TYPE": "Release", "HOME": "x"}
    assert tool("flags").flags(environment) == {"CMAKE_BUILD_TYPE": "Release"}


@pytest.mark.parametrize("version", ["3.22.1", "3.24.0", ""])
def test_minimal_wants_a_cmake_that_knows_it(tool, monkeypatch, tmp_path, version):
    if version:
        executable(tmp_path / "cmake", f"#!/bin/sh\necho cmake version {version}\n")
    monkeypatch.setattr(shutil, "which", partial(shutil.which, path=str(tmp_path)))
    tree = Of(path=ROOT, changed=list, applied=lambda: None)
    environment = {"MAX_JOBS": "1"} | tool("flags").OF_MINIMAL
    said = "\n".join(tool("ready").in_the_way(tree, environment, False))
    assert ("pip install -U cmake" in said) == (version != "3.24.0")
    assert ("no cmake" in said) == (not version)


def test_programs_that_conda_installs_are_there(tool, monkeypatch, tmp_path):
    """It tells pip nothing of cmake and ninja."""
    none = mock.Mock(side_effect=importlib.metadata.PackageNotFoundError)
    (tmp_path / "requirements.txt").write_text("cmake>=3.27\nninja\n")
    for name in ("cmake", "ninja"):
        executable(tmp_path / name)
    monkeypatch.setattr(importlib.metadata, "version", none)
    for path in ("/nowhere", str(tmp_path)):
        monkeypatch.setenv("PATH", path)
        said = tool("needed").missing(tmp_path)
        assert ("cmake" in said) == (path == "/nowhere") and "expecttest" in said


def place_of(tool, folder, environment=(), state="stock", **record):
    """A state of a tree, with no more of a record than is asked for."""
    bare = {"folder": folder, "log": lambda *_: folder / "log", "data": {}, "set": lambda **_: None}
    record = Of(**bare | record)
    series = None if state in ("stock", "undone") else state
    return tool("building").Place(Of(path=folder), record, dict(environment), state, series)


@pytest.mark.skipif(not shutil.which("cmake"), reason="no cmake")
def test_that_cmake_included_the_file_is_seen(tool, tmp_path):
    project = "cmake_minimum_required(VERSION 3.24)\nproject(x NONE)\n"
    write(tmp_path, "CMakeLists.txt", project)
    for options in ([], [f"-DCMAKE_PROJECT_TOP_LEVEL_INCLUDES={FOLDER / 'minimal.cmake'}"]):
        checked("cmake", "-S", tmp_path, "-B", tmp_path / "build", *options)
        assert place_of(tool, tmp_path).is_minimal() == bool(options)


@pytest.mark.parametrize("minimal", [True, False])
def test_a_build_that_ignores_minimal_is_refused(tool, monkeypatch, tmp_path, minimal):
    (tmp_path / "version.txt").write_text("2.13.0a0\n")
    building, flags = tool("building"), tool("flags")

    def built(command, log, see, **how):
        log.write_text("[1/1] Linking")

    monkeypatch.setattr(building, "watched", built)
    environment = flags.OF_MINIMAL if minimal else {flags.INCLUDES: "conan.cmake"}
    place = place_of(tool, tmp_path, environment)
    if minimal:
        with pytest.raises(building.Refusal, match="CMake did not include"):
            place.build("build")
    else:
        assert place.build("build")["steps"] == 1


@pytest.mark.parametrize("change", [{}, {"folders": ["/elsewhere"]}, {"version": "2.13.0+stock"}])
def test_a_torch_that_was_not_built_is_refused(tool, monkeypatch, tmp_path, change):
    """One of a fork keeps what its version says after a +."""
    (tmp_path / "version.txt").write_text("2.13.0a0+Fork_1\n")
    building = tool("building")
    right = {"folders": [str(tmp_path / "torch")], "version": "2.13.0+fork.1.strict.er"}
    monkeypatch.setattr(building.Place, "imported", lambda self: right | change)
    place = place_of(tool, tmp_path, state="v2/strict-er")
    if change:
        with pytest.raises(building.Refusal, match="is imported, and"):
            place.built()
    else:
        assert place.built() == right


# ---- How long it takes ---------------------------------------------------------------------------


def test_a_compiler_that_compiles_nothing_is_refused(tool, tmp_path):
    broken = executable(tmp_path / "broken", "#!/bin/sh\necho no such sysroot >&2\nexit 1\n")
    with pytest.raises(tool("outlook").Refusal, match="no such sysroot"):
        tool("outlook").probe(broken)


def test_that_an_earlier_build_is_built_anew_is_said(tool, monkeypatch, tmp_path):
    """With --minimal, a developer's own build would become one without features."""
    write(tmp_path, "build/CMakeCache.txt", "")
    record = Of(folder=tmp_path / "build/x", data={"tree": {"release": "2.13.0", "commit": None}})
    monkeypatch.setattr(tool("outlook"), "probe", lambda compiler: 1.0)
    for record.has_begun in (True, False):
        told = tool("outlook").outlook(record, {"MAX_JOBS": "1"}, False)
        assert ("built anew" in told) != record.has_begun


# What a build prints, and the files that it has compiled then.
LINES = {
    "[3/7] Building CXX object caffe2/CMakeFiles/a.dir/A.cpp.o": ["A.cpp.o"],
    "  [3/7] Building CXX object a.cpp.o": ["a.cpp.o"],  # as pip indents it
    # With VERBOSE=1 ninja prints commands.
    "[3/7] c++ -DX -o caffe2/CMakeFiles/a.dir/A.cpp.o -c /tree/A.cpp": ["A.cpp.o"],
    "[3/7] /usr/bin/nvcc -x cu -c /tree/B.cu -o caffe2/a.dir/B.cu.o": ["B.cu.o"],
    "[3/7] Building C object a.c.o": [],
    "[3/7] /usr/bin/c++ -shared -o lib/libtorch_cpu.so caffe2/a.dir/A.cpp.o": [],
    "Downloading [3/7]": None,
}


@pytest.mark.parametrize("line", LINES)
def test_what_a_build_has_done_is_counted(tool, line):
    compiled, seen = LINES[line], tool("progress").Progress()
    seen.see(line)
    assert (seen.done, seen.total) == ((0, 0) if compiled is None else (3, 7))
    assert tool("progress").steps([line]) == (compiled is not None, compiled or [])


# ---- The record ----------------------------------------------------------------------------------


def test_a_later_run_keeps_what_still_holds(tool, tmp_path):
    """Of fewer series, what was built; of a full run after a quick one, all but the gradients."""
    tree = tool("series").Tree(tree_of(tmp_path))
    of, done = tool("record").Record.of, {"seconds": 1}
    first = of(tree, [SERIES, "v2.13.0/strict"], {}, True)
    states = ("stock", SERIES, "undone")
    for state in states:
        first.states[state] = dict.fromkeys(("build", "controls", "gradients"), done)
    first.save()
    assert of(tree, first.data["series"], {}, True).states == first.states
    full = of(tree, first.data["series"], {}, False)
    assert not full.data["quick"]
    assert all(steps.keys() == {"build", "controls"} for steps in full.states.values())
    fewer = of(tree, [SERIES], {}, True)
    kept = {state: list(steps) for state, steps in fewer.states.items()}
    assert kept["stock"] == ["build", "gradients"] and kept["undone"] == ["build"]


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


def test_what_lies_in_our_checkout_is_neither_asked_nor_packed(tool):
    """PyTorch may be cloned there, with an environment beside it: docs/upstream/build.md does so."""
    packed = tool("checkout").PACKAGE
    asked = [path.relative_to(ROOT).parts[0] for path in tool("record").proofs()]
    assert len(asked) > 100 and {*asked} <= {*packed, "benchmarks", "test", "docs"}
    assert all((ROOT / name).exists() for name in packed)
    tracked = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    assert "pytorch" not in {name.partition("/")[0] for name in tracked}


def test_the_series_are_one_module_for_all_tools():
    """So what one of them raises, another catches."""
    code = """
import series, sys, tools.series
from tools.verify.text import Refusal
print(Refusal is series.Refusal is tools.series.Refusal, [m for m in sys.modules if m.endswith("patches.series")])
"""
    assert answer(code) == "True ['clampgrad_patches.series']"


# ---- Processes -----------------------------------------------------------------------------------

ENDLESS = "import os, time; os.fork()\nwhile True: print(flush=True); time.sleep(.05)"


def is_still(log):
    written = log.stat().st_size
    time.sleep(0.5)
    return written == log.stat().st_size > 0


@pytest.mark.parametrize("before, says", [
    ("processes.LONGEST = 3", "no end after"),
    ("processes.end_all()", "-9"),  # what a thread starts after an interrupt
])  # fmt: skip
def test_a_program_that_does_not_end_is_ended(tmp_path, before, says):
    """And what it started: some of upstream's tests start processes."""
    code = f"""
import pathlib, sys, processes
{before}
print(processes.run([sys.executable, "-c", {ENDLESS!r}], pathlib.Path(sys.argv[1])))
"""
    log = tmp_path / "log"
    assert begun(code, log).communicate(timeout=30)[0].startswith(says)
    assert is_still(log) or says == "-9"


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
    process = begun(code, tmp_path)
    logs = [tmp_path / name for name in ("test_autograd", "test_jit")]
    while not all(log.exists() and log.stat().st_size for log in logs):
        time.sleep(0.1)
    process.send_signal(number)
    process.communicate(timeout=30)
    assert all(map(is_still, logs))


def test_nohup_is_heeded():
    code = """
import signal, processes
signal.signal(signal.SIGHUP, signal.SIG_IGN)
processes.interrupt_on_signals()
print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN, signal.getsignal(signal.SIGTERM) == signal.default_int_handler)
"""
    assert answer(code) == "True True"


@pytest.mark.parametrize("name", [
    "CI", "CLAMPGRAD_GRADIENT", "PYTHONSAFEPATH", "PYTORCH_JIT", "TORCHDYNAMO_DISABLE"
])  # fmt: skip
def test_variables_that_change_what_is_asked_are_not_passed_on(tool, monkeypatch, tmp_path, name):
    proofs, passed = tool("proofs"), {}

    def ran(command, log, env, cwd):
        passed.update(env)
        Path(command[2]).write_text("{}")

    monkeypatch.setenv(name, "1")
    monkeypatch.setattr(proofs.processes, "run", ran)
    place = place_of(tool, tmp_path, data={"torch": {}})
    proofs.child(place, "name", "program.py")
    assert name not in passed and "PATH" in passed


# ---- Upstream's tests ----------------------------------------------------------------------------


def patch_of(text):
    return Of(name="1.patch", read_text=lambda: text)


def test_the_names_that_upstream_generates_are_known(tool, monkeypatch):
    text = (
        '@@ -1 +1,2 @@\n+    def test_new(self, device):\n+        OpInfo("special.soft_clamp",\n'
    )
    brought = tool("brought")
    monkeypatch.setattr(brought, "named", lambda name: Of(patches=[patch_of(text)]))
    generated = ["new_bounds_2_cuda", "new", "fn_grad_special_soft_clamp_cpu_float64"]
    names = [*generated, "newer", "old_cpu", "fn_grad_soft_clamp_cpu"]
    assert [name for name in names if brought.is_of("mine", f"test_{name}")] == generated


CAUSES = [
    ("/a/b/libx.so: cannot open", "/home/c/d/libx.so: cannot open", True),
    ("/a/libx.so: cannot open", "/a/liby.so: cannot open", False),
    ("<T at 0x7f1> after 1.5s", "<T at 0x8e2> after 20 s", True),
    ("in /tmp/tmpab12cd_9/x.py:12", "in /tmp/tmpzz00zz_0/x.py:15", True),
    ("line 3, got 4", "line 9, got 4", True),
    ("line 3, got 4", "line 3, got 5", False),
]


@pytest.mark.parametrize("one, other, same", CAUSES)
def test_a_cause_is_told_without_what_varies(tool, one, other, same):
    plain = tool("cause").plain
    assert (plain(one) == plain(other)) == same


def test_a_series_whose_tests_are_not_asked_says_so(tool, monkeypatch):
    verdict = tool("verdict")
    assert verdict.controls(None, "proposals/save-result").startswith("not asked")
    monkeypatch.setattr(verdict, "new_tests", lambda name: [])
    assert verdict.controls(None, SERIES) == "brings no tests"


def test_files_that_a_series_touches_and_the_tree_lacks_are_named(tool, monkeypatch, tmp_path):
    upstream, patch = tool("upstream"), tmp_path / "1.patch"
    patch.write_text("--- a/test/old.py\n+++ b/test/old.py\n--- /dev/null\n+++ b/test/new.py\n")
    monkeypatch.setattr(upstream, "named", lambda name: Of(patches=[patch]))
    place = place_of(tool, tmp_path)
    assert upstream.absent(place, ["mine"]) == ["test/old.py"]
    assert upstream.others(place, ["mine"]) == {}


@pytest.mark.parametrize("library", ["cpu", "cuda", "hip"])
def test_upstreams_tests_on_a_gpu_run_one_after_another(tool, monkeypatch, library):
    upstream, threads = tool("upstream"), set()

    def of_file(place, file, names):
        threads.add(threading.get_ident())
        time.sleep(0.2)

    monkeypatch.setattr(upstream, "of_file", of_file)
    monkeypatch.setattr(upstream, "TESTS", {name: () for name in ("a", "b", "c")})
    libraries = {"/torch/lib/libtorch.so": [], f"/torch/lib/libtorch_{library}.so": []}
    record = Of(found=lambda *_: None, part=lambda state, step, file, work: work())
    record.data = {"torch": {"libraries": libraries}}
    place = Of(environment={"MAX_JOBS": "3"}, series=None, state="stock", record=record)
    place.tree, place.step = Of(path=Path()), lambda name, work: work()
    upstream.tests(place, [])
    assert len(threads) == (3 if library == "cpu" else 1)


# ---- Gradients and times -------------------------------------------------------------------------


def test_stock_must_have_the_gradients_of_its_release():
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


def test_what_is_saved_and_called_is_judged(tool, monkeypatch):
    judged = tool("judged")
    added = "+- func: clamp_new.Scalar(Tensor self)\n+- func: other(Tensor self)\n"
    claim = Of(saves=("result",), covers=lambda operator, kind: kind == "numbers")
    monkeypatch.setattr(judged, "named", lambda name: Of(claim=claim, patches=[patch_of(added)]))
    saved = {
        "clamp, numbers": ["self"],
        "clamp_min, numbers": ["result"],
        "clamp, tensors": ["self"],
    }
    assert judged.ran({"saved": saved, "called": ["other"]}, "mine") == [
        "clamp, numbers saves self, not result",
        "nothing calls clamp_new.Scalar, which it adds",
    ]


ANOTHER = dict.fromkeys(("gradients.py", "package.py", "-S times.py"), "another torch answers")


@pytest.mark.parametrize("program", [*ANOTHER, "times.py"])
def test_programs_refuse_another_torch(tmp_path, program):
    """Times are of the very files."""
    *flags, file = program.split()
    wanted = json.dumps({"version": "2.13.0+strict"} if program in ANOTHER else {})
    path = os.pathsep.join(p for p in sys.path if p)
    variables = os.environ | {"CLAMPGRAD_BUILT": wanted, "PYTHONPATH": path}
    command = [sys.executable, *flags, FOLDER / file, tmp_path / "out.json", tmp_path]
    done = run(*command, env=variables)
    assert done.returncode == 1 and ANOTHER.get(program, f"not of {tmp_path}: ") in done.stderr


def test_what_is_kept_for_the_times_is_all_of_a_torch(tool, tmp_path):
    """Its Python and its libraries, from the one or the two folders that it is in; what is as on stock once."""
    source, built, library = tmp_path / "source", tmp_path / "built", Path("lib/libtorch_cuda.so")
    write(source, "csrc/Module.cpp", "")
    write(built, library, "same")
    data = {"torch": {"folders": [str(source), str(built)]}}
    record = Of(folder=tmp_path, data=data, states={}, found=lambda *_: None)
    for state in ("stock", "v2/mine"):
        write(source, "decompositions.py", state)
        tool("timing").keep(Of(record=record, state=state, step=lambda name, work: work()))
    stock, mine = (tmp_path / "copies" / state / "torch" for state in ("stock", "v2/mine"))
    assert not (mine / "csrc").exists()
    texts = [(copy / "decompositions.py").read_text() for copy in (stock, mine)]
    assert texts == ["stock", "v2/mine"]
    assert (stock / library).samefile(mine / library)
    assert not (stock / library).samefile(built / library)
