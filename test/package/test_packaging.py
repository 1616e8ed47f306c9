"""The installed package: its metadata, its messages on a wrong torch, its types."""

import importlib.metadata
import os
import shutil
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

import clampgrad
from clampgrad import _implementation
from clampgrad._implementation.stamp import MARK
from common import checked

pytestmark = pytest.mark.slow
about_the_library = pytest.mark.compiled("it is about which library is loaded")

PACKAGE = Path(clampgrad.__file__).parent
# The folder of the library that runs here.
LIBRARY = Path(str(_implementation.functions.__file__)).parent.name
MINOR = ".".join(torch.__version__.split(".")[:2])


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


@pytest.fixture
def file(copy):
    """The library in it."""
    (file,) = (copy / "_lib" / LIBRARY).glob("_C*")
    return file


@pytest.fixture
def imported(copy, script):
    """Imports the package -> its implementation, and its warnings or errors."""
    show = "import clampgrad; print(clampgrad.implementation, end='')"
    return partial(script, show, cwd=copy.parent, check=False)


def test_the_version():
    assert clampgrad.__version__ == importlib.metadata.version("clampgrad")


# ---- A library that does not fit -----------------------------------------------------------------


def say(package, **facts):
    """Changes facts in the build file of a package."""
    with open(package / "_implementation/build.py", "a") as file:
        file.writelines(f"\n{name} = {value!r}\n" for name, value in facts.items())


def another_minor(file):
    file.parent.rename(file.parent.with_name("torch_2_10"))


def another_build(fact):
    return lambda file: say(file.parents[2], **{fact: "other"})


def with_bytes(old, new):
    def change(file):
        whole = file.read_bytes()
        assert old.encode() in whole
        file.write_bytes(whole.replace(old.encode(), new.encode()))

    return change


NINES = "9" * len(MINOR)
# What happens to the library, and the message.
MISFITS = {
    "another minor": (another_minor, ["for torch 2.10", f"here is torch {torch.__version__}"]),
    "another version": (another_build("VERSION"), ["of another build", "version=other"]),
    "other sources": (another_build("SOURCES"), ["of another build", "sources=other"]),
    "nothing of it": (lambda file: os.truncate(file, 0), ["does not say"]),
    # Whatever its folder says.
    "no mark": (with_bytes(MARK, MARK.swapcase()), ["it does not say which"]),
    "another torch": (with_bytes(f" torch={MINOR} ", f" torch={NINES} "), [f"torch={NINES}"]),
}


@about_the_library
@pytest.mark.parametrize("what", MISFITS)
def test_a_library_that_does_not_fit_is_one_warning_or_an_error(file, imported, what):
    """The message says what mends it. There is none if the portable implementation is asked for."""
    change, says = MISFITS[what]
    change(file)
    out, warning = imported()
    assert (out, warning.count("Warning")) == ("portable", 1) and "CLAMPGRAD_PORTABLE=1" in warning
    out, err = imported(CLAMPGRAD_REQUIRE_COMPILED="1")
    error = err.splitlines()[-1]
    assert not out and error.startswith("ImportError: ")
    for text in (warning, error):
        assert all(part in text for part in (*says, "pip install --force-reinstall"))
    assert imported(CLAMPGRAD_PORTABLE="1") == ("portable", "")


PRETEND = """
import torch
torch.__version__, torch.version.cuda = {version!r}, {cuda!r}
import clampgrad
from clampgrad import _implementation
print(clampgrad.implementation, _implementation.functions.__file__.split("/")[-2])
"""


@about_the_library
@pytest.mark.skipif(
    "_cu" in LIBRARY, reason="this build has kernels for CUDA: for one flavour alone"
)
@pytest.mark.parametrize("version", [f"{MINOR}.99", f"{MINOR}.0+cu999", f"{MINOR}.1a0+git1234567"])
def test_patch_releases_and_flavours_of_torch_share_a_library(copy, script, version):
    text = PRETEND.format(version=version, cuda="999.0" if "cu" in version else None)
    out, _ = script(text, cwd=copy.parent, CLAMPGRAD_REQUIRE_COMPILED="1")
    assert out.split() == ["compiled", LIBRARY]


@about_the_library
def test_with_cuda_the_library_that_has_kernels_for_it(copy, script):
    folder = copy / "_lib" / LIBRARY
    plain = "torch_" + MINOR.replace(".", "_")
    for name in (plain, f"{plain}_cu999"):
        if folder.name != name:
            shutil.copytree(folder, folder.with_name(name))
    for cuda, expected in ((None, plain), ("999.1", f"{plain}_cu999"), ("998.0", plain)):
        out, _ = script(PRETEND.format(version=torch.__version__, cuda=cuda), cwd=copy.parent)
        assert out.split() == ["compiled", expected]


def test_a_build_that_lacked_something_says_so_when_it_is_imported(copy, imported):
    shutil.rmtree(copy / "_lib", ignore_errors=True)
    say(copy, MISSING="there was no C++ compiler")
    out, err = imported()
    assert (out, err.count("Warning")) == ("portable", 1) and "there was no C++ compiler" in err


# ---- Twice ---------------------------------------------------------------------------------------

AGAIN = """
import gc, sys, clampgrad
for name in [name for name in sys.modules if "clampgrad" in name]:
    del sys.modules[name]
del clampgrad
gc.collect()
"""
OTHER_LIBRARY = """
import torch
theirs = torch.library.Library("clampgrad", "DEF")
theirs.define("clamp(Tensor self) -> Tensor")
theirs.impl("clamp", lambda x: x, "CPU")
"""


@pytest.mark.parametrize("portable", ["0", "1"])
@pytest.mark.parametrize("before, says", [
    (AGAIN, "start the process again"),
    (OTHER_LIBRARY, "another library"),
])  # fmt: skip
def test_two_in_one_process_are_one_clear_sentence(copy, script, before, says, portable):
    code = f"{before}\nimport clampgrad"
    _, err = script(code, cwd=copy.parent, check=False, CLAMPGRAD_PORTABLE=portable)
    message = err.splitlines()[-1]
    assert message.startswith("ImportError: ") and says in message


# ---- Types ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_stubs_say_what_the_extension_has(tmp_path):
    pytest.importorskip("mypy", reason="mypy checks the types: install it")
    stubs = ("clampgrad._C", "clampgrad._implementation.build")
    checked(sys.executable, "-m", "mypy.stubtest", *stubs, cwd=tmp_path)
