"""The package as it is installed: what it is called, what it says on a wrong torch, its types."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

import clampgrad
from clampgrad import _implementation
from clampgrad._implementation.elf import is_cut_off
from clampgrad._implementation.stamp import MARK
from clampgrad.cli import info
from common import forks

pytestmark = pytest.mark.thorough

PACKAGE = Path(clampgrad.__file__).parent
# The folder of the library that runs here.
LIBRARY = Path(str(_implementation.functions.__file__)).parent.name
MINOR = ".".join(torch.__version__.split(".")[:2])


def python(*arguments, **keywords):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, **keywords)


@pytest.fixture
def copy(tmp_path):
    """The package at a path with a space and letters that are not ASCII."""
    target = tmp_path / "ein Pfad, größer" / "clampgrad"
    shutil.copytree(PACKAGE, target, ignore=shutil.ignore_patterns("__pycache__"))
    # A wheel may bring libraries for other releases of torch too; what is tested here is about one.
    for folder in target.glob("_lib/torch_*"):
        if folder.name != LIBRARY:
            shutil.rmtree(folder)
    return target


def test_it_runs_from_any_path(copy):
    run = python("-c", "import clampgrad; print(clampgrad.__file__)", cwd=copy.parent)
    assert run.returncode == 0, run.stderr
    assert Path(run.stdout.strip()).parent == copy


def test_the_version():
    assert clampgrad.__version__ == importlib.metadata.version("clampgrad")


def test_the_instruction_set_where_the_loops_have_no_vectors(monkeypatch):
    monkeypatch.setattr(info.sys, "platform", "win32")
    assert info.instruction_set(compiled=True) == "DEFAULT"


@pytest.fixture(scope="module")
def python_with(tmp_path_factory):
    """A script in a process of its own, where torch is imported already."""
    script = tmp_path_factory.mktemp("script") / "script.py"

    def run(variables, text, cwd):
        script.write_text(text)
        code, out, err = fork(script, cwd=cwd, **variables)
        return subprocess.CompletedProcess([script], code, out, err)

    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            for name in [n for n in os.environ if n.startswith("CLAMPGRAD_")]:
                patch.delenv(name)
            fork = stack.enter_context(forks("torch"))
        yield run


def say(package, **facts):
    """Has the build of a package say something else."""
    with open(package / "_implementation/build.py", "a") as file:
        file.writelines(f"\n{name} = {value!r}\n" for name, value in facts.items())


SHOW = "import clampgrad; print(clampgrad.implementation)"


@pytest.mark.compiled("it is about which library is loaded")
def test_another_minor_of_torch_is_one_warning_and_the_portable_implementation(copy, python_with):
    (copy / "_lib" / LIBRARY).rename(copy / "_lib" / "torch_2_10")
    run = python_with({}, SHOW, cwd=copy.parent)
    assert run.stdout.strip() == "portable", run.stderr
    assert run.stderr.count("Warning") == 1
    for part in ("for torch 2.10", f"here is torch {torch.__version__}", "CLAMPGRAD_PORTABLE=1"):
        assert part in run.stderr
    silent = python_with({"CLAMPGRAD_PORTABLE": "1"}, SHOW, cwd=copy.parent)
    assert (silent.stdout.strip(), silent.stderr) == ("portable", "")


@pytest.mark.compiled("it is about which library is loaded")
def test_another_minor_of_torch_is_one_clear_sentence_where_a_library_is_required(
    copy, python_with
):
    (copy / "_lib" / LIBRARY).rename(copy / "_lib" / "torch_2_10")
    run = python_with({"CLAMPGRAD_REQUIRE_COMPILED": "1"}, SHOW, cwd=copy.parent)
    message = run.stderr.splitlines()[-1]
    assert message.startswith("ImportError: ")
    for part in ("for torch 2.10", f"here is torch {torch.__version__}", "pip install"):
        assert part in message


@pytest.mark.compiled("it is about which library is loaded")
def test_what_is_no_library_is_one_warning_or_none(copy, python_with):
    folder = copy / "_lib" / LIBRARY
    (file,) = folder.glob("_C*")
    # A download that was cut off: the loader says of some that they are too short, and dies of others.
    size = file.stat().st_size
    for left, says in ((size // 2, "is cut off"), (64, "is cut off"), (0, "does not say")):
        os.truncate(file, left)
        run = python_with({}, SHOW, cwd=copy.parent)
        assert (run.stdout.strip(), run.stderr.count("Warning")) == ("portable", 1), run.returncode
        assert says in run.stderr
    file.unlink()
    file.mkdir()
    other = folder.with_name("torch_main")  # that nobody gave a release
    other.mkdir()
    (other / file.name).write_bytes(b"")
    run = python_with({}, SHOW, cwd=copy.parent)
    assert (run.stdout.strip(), run.stderr) == ("portable", "")


@pytest.mark.compiled("it is about which library is loaded")
def test_a_library_is_cut_off_where_a_segment_ends_later(copy, python_with):
    (file,) = (copy / "_lib" / LIBRARY).glob("_C*")
    if file.read_bytes()[:4] != b"\x7fELF":
        pytest.skip("a library of another format")
    size, found = file.stat().st_size, []
    assert not is_cut_off(str(file))
    for left in range(size - 1, 63, -(size // 97)):
        os.truncate(file, left)
        found.append(is_cut_off(str(file)))
        if not found[1:]:  # behind the segments are names for linkers, and nothing that is loaded
            run = python_with({}, SHOW, cwd=copy.parent)
            assert (run.stdout.strip(), run.stderr) == ("compiled", "")
    assert not found[0] and found[-1] and found == sorted(found)


PRETEND = """
import torch
torch.__version__, torch.version.cuda = {version!r}, {cuda!r}
import clampgrad
from clampgrad import _implementation
print(clampgrad.implementation, _implementation.functions.__file__.split("/")[-2])
"""


@pytest.mark.compiled("it is about which library is loaded")
@pytest.mark.parametrize("version", [f"{MINOR}.99", f"{MINOR}.0+cu999", f"{MINOR}.1a0+git1234567"])
def test_patch_releases_and_flavours_of_torch_share_a_library(copy, python_with, version):
    if "_cu" in LIBRARY:
        pytest.skip("this build is for one flavour of torch alone: it has kernels for CUDA")
    script = PRETEND.format(version=version, cuda="999.0" if "cu" in version else None)
    run = python_with({"CLAMPGRAD_REQUIRE_COMPILED": "1"}, script, cwd=copy.parent)
    assert run.stdout.split() == ["compiled", LIBRARY], run.stderr


@pytest.mark.compiled("it is about which library is loaded")
def test_with_cuda_the_library_that_has_kernels_for_it(copy, python_with):
    folder = copy / "_lib" / LIBRARY
    plain = "torch_" + MINOR.replace(".", "_")
    for name in (plain, f"{plain}_cu999"):
        if folder.name != name:
            shutil.copytree(folder, folder.with_name(name))
    for cuda, expected in ((None, plain), ("999.1", f"{plain}_cu999"), ("998.0", plain)):
        script = PRETEND.format(version=torch.__version__, cuda=cuda)
        run = python_with({}, script, cwd=copy.parent)
        assert run.stdout.split() == ["compiled", expected], run.stderr


def test_a_build_that_lacked_something_says_so_when_it_is_imported(copy, python_with):
    shutil.rmtree(copy / "_lib", ignore_errors=True)
    say(copy, MISSING="there was no C++ compiler")
    run = python_with({}, SHOW, cwd=copy.parent)
    assert run.stdout.strip() == "portable", run.stderr
    assert run.stderr.count("Warning") == 1
    assert "there was no C++ compiler" in run.stderr


@pytest.mark.compiled("it is about which library is loaded")
@pytest.mark.parametrize("fact", ["VERSION", "SOURCES"])
def test_a_library_of_another_build_is_one_warning_with_what_mends_it(copy, python_with, fact):
    say(copy, **{fact: "other"})
    run = python_with({}, SHOW, cwd=copy.parent)
    assert (run.stdout.strip(), run.stderr.count("Warning")) == ("portable", 1), run.stderr
    required = python_with({"CLAMPGRAD_REQUIRE_COMPILED": "1"}, SHOW, cwd=copy.parent)
    message = required.stderr.splitlines()[-1]
    assert message.startswith("ImportError: ")
    for text in (run.stderr, message):
        assert "of another build" in text and f"{fact.lower()}=other" in text
        assert "pip install --force-reinstall" in text


@pytest.mark.compiled("it is about which library is loaded")
@pytest.mark.parametrize(
    "written, instead, says",
    [
        (MARK, MARK.swapcase(), "it does not say which"),
        (f" torch={MINOR} ", f" torch={'9' * len(MINOR)} ", f"torch={'9' * len(MINOR)}"),
    ],
)
def test_a_library_that_is_not_for_this_torch_whatever_its_folder(
    copy, python_with, written, instead, says
):
    (file,) = (copy / "_lib" / LIBRARY).glob("_C*")
    whole = file.read_bytes()
    assert written.encode() in whole
    file.write_bytes(whole.replace(written.encode(), instead.encode()))
    run = python_with({}, SHOW, cwd=copy.parent)
    assert (run.stdout.strip(), run.stderr.count("Warning")) == ("portable", 1), run.stderr
    assert says in run.stderr


AGAIN = """
import gc, sys, torch, clampgrad

def purge():
    for name in [name for name in sys.modules if "clampgrad" in name]:
        del sys.modules[name]
    gc.collect()

def at_the_bound(clamp, **keywords):
    x = torch.zeros(1, requires_grad=True)
    return torch.autograd.grad(clamp(x, 0, 1, **keywords), x)[0].item()

earlier, own = clampgrad, at_the_bound(torch.clamp)
"""

PURGED = (
    AGAIN
    + """
with clampgrad.pin("half"):
    purge()
    import clampgrad
    assert clampgrad is not earlier and clampgrad.implementation == earlier.implementation
    assert at_the_bound(torch.clamp) == 0.5
    with clampgrad.pin("inclusive"):
        assert at_the_bound(torch.clamp) == 1
    with earlier.pin("min_norm"):
        assert at_the_bound(torch.clamp) == 0
    assert at_the_bound(torch.clamp) == 0.5
assert at_the_bound(torch.clamp) == own
for clamp in (earlier.clamp, clampgrad.clamp, torch.ops.clampgrad.clamp):
    assert at_the_bound(clamp, gradient="half") == 0.5
assert clampgrad.nn.Clamp(0, 1, gradient="inclusive")(torch.zeros(1)) == 0
with clampgrad.pin("half"):
    assert at_the_bound(torch.compile(torch.clamp, backend="aot_eager")) == 0.5
print(clampgrad.implementation)
"""
)


@pytest.mark.parametrize("portable", ["0", "1"])
def test_it_is_imported_again_where_sys_modules_was_purged(copy, python_with, portable):
    expected = "portable" if portable == "1" else clampgrad.implementation
    run = python_with({"CLAMPGRAD_PORTABLE": portable}, PURGED, cwd=copy.parent)
    assert (run.stdout.strip(), run.stderr) == (expected, "")


@pytest.mark.parametrize(
    "change",
    [
        'open(clampgrad._implementation.build.__file__, "a").write("VERSION = \'other\'")',
        'import os; os.environ.update(CLAMPGRAD_PORTABLE="0", CLAMPGRAD_REQUIRE_COMPILED="1")',
    ],
)
def test_another_build_or_choice_needs_another_process(copy, python_with, change):
    script = f"{AGAIN}\n{change}\npurge()\nimport clampgrad"
    run = python_with({"CLAMPGRAD_PORTABLE": "1"}, script, cwd=copy.parent)
    message = run.stderr.splitlines()[-1]
    assert message.startswith("ImportError: ") and "start the process again" in message


@pytest.mark.slow
def test_two_libraries_in_one_process_is_one_clear_sentence(copy):
    script = """
import torch
torch.library.Library("clampgrad", "DEF").define("clamp(Tensor self) -> Tensor")
torch.library.impl("clampgrad::clamp", "CPU", lambda x: x)
import clampgrad
"""
    run = python("-c", script, cwd=copy.parent)
    assert "ImportError: another library" in run.stderr.splitlines()[-1]


def test_types_are_there():
    assert (PACKAGE / "py.typed").exists()
    for stub in PACKAGE.glob("*.pyi"):
        assert (PACKAGE / f"{stub.stem}.py").exists() or stub.stem == "_C"


@pytest.mark.slow
def test_stubs_say_what_the_extension_has(tmp_path):
    pytest.importorskip("mypy", reason="mypy checks the types: install it")
    run = python(
        "-m",
        "mypy.stubtest",
        "clampgrad._C",
        "clampgrad._implementation.build",
        cwd=tmp_path,
    )
    assert run.returncode == 0, run.stdout
