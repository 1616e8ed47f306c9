"""The installed package: its metadata, its messages on a wrong torch, its types."""

import importlib.metadata
import json
import os
import re
import shutil
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

import clampgrad
from clampgrad import _implementation
from clampgrad._implementation import build
from clampgrad._implementation.stamp import MARK
from testing.processes import run_checked

pytestmark = pytest.mark.slow
about_the_library = pytest.mark.compiled("it is about which library is loaded")

PACKAGE = Path(clampgrad.__file__).parent
# The folder of the library that runs here, and the module of this Python in it.
LIBRARY, MODULE = Path(str(_implementation.functions.__file__)).parts[-2:]
MINOR = ".".join(torch.__version__.split(".")[:2])


@pytest.fixture
def copy(tmp_path):
    """The package at a path with a space and letters that are not ASCII, with only the library that
    runs here: a wheel may bring some for other releases of torch too."""

    def others(folder, names):
        return [n for n in names if re.match("__pycache__$|torch_", n) and n != LIBRARY]

    return shutil.copytree(PACKAGE, tmp_path / "ein Pfad, größer/clampgrad", ignore=others)


@pytest.fixture
def imported(copy, script):
    """Imports the package -> its implementation, and its warnings or errors."""
    show = "import clampgrad; print(clampgrad.implementation, end='')"
    return partial(script, show, cwd=copy.parent, check=False)


def test_the_version():
    assert clampgrad.__version__ == importlib.metadata.version("clampgrad")


def test_the_readme_is_shown_as_markdown():
    metadata = importlib.metadata.metadata("clampgrad")
    assert metadata["Description-Content-Type"] == "text/markdown"


# ---- A library that does not fit -----------------------------------------------------------------


def say(package, **facts):
    """Changes facts in the build file of a package."""
    with open(package / "_implementation/build.py", "a") as file:
        file.writelines(f"\n{name} = {value!r}\n" for name, value in facts.items())


def replace(file, old, new):
    whole = file.read_bytes()
    assert old.encode() in whole
    file.write_bytes(whole.replace(old.encode(), new.encode()))


def beside(file):
    return file.with_name(build.LIBRARY)


def for_others(file):
    """Only modules of other Pythons are there."""
    content, this = file.read_bytes(), f"-{THIS.replace('.', '')}-"
    for module in file.parent.glob("_C.*"):
        module.unlink()
    for python in ("39", "310"):
        file.with_name(file.name.replace(this, f"-{python}-")).write_bytes(content)


THIS = ".".join(map(str, sys.version_info[:2]))
HERE, NINES = f" torch={MINOR} ", f" torch={'9' * len(MINOR)} "
# What happens to the module of Python, to the library that it links or to the package around
# them, and what the message says.
MISFITS = {
    "another minor": (lambda f: f.parent.rename(f.parents[1] / "torch_2_10"), "for torch 2.10"),
    "another version": (lambda f: say(f.parents[2], VERSION="other"), "version=other"),
    "other sources": (lambda f: say(f.parents[2], SOURCES="other"), "sources=other"),
    "no mark": (lambda f: replace(f, MARK, MARK.upper()), "does not say which"),
    "nothing of it": (lambda f: os.truncate(f, 0), "does not say which"),
    "most of it": (lambda f: os.truncate(f, f.stat().st_size - 1), "does not say which"),
    "most of the library": (
        lambda f: os.truncate(beside(f), beside(f).stat().st_size - 1),
        "does not say which",
    ),
    "another torch": (lambda f: replace(f, HERE, NINES), NINES.strip()),  # whatever its folder says
    "another torch of the library": (lambda f: replace(beside(f), HERE, NINES), NINES.strip()),
    "no library": (lambda f: beside(f).unlink(), "a part of it is missing"),
    "other Pythons": (for_others, f"is for Python 3.9, 3.10, and this is Python {THIS}"),
}


@about_the_library
@pytest.mark.parametrize("what", MISFITS)
def test_a_library_that_does_not_fit_is_one_warning_or_an_error(copy, imported, what):
    """The message says what mends it. There is none if the portable implementation is asked for."""
    change, says = MISFITS[what]
    change(copy / "_lib" / LIBRARY / MODULE)
    out, warning = imported()
    assert (out, warning.count("Warning")) == ("portable", 1) and "CLAMPGRAD_PORTABLE=1" in warning
    out, err = imported(CLAMPGRAD_REQUIRE_COMPILED="1")
    error = err.splitlines()[-1]
    assert not out and error.startswith("ImportError: ")
    for text in (warning, error):
        assert says in text and "pip install --force-reinstall" in text
    assert imported(CLAMPGRAD_PORTABLE="1") == ("portable", "")


PRETEND = """
import torch
torch.__version__, torch.version.cuda = {version!r}, {cuda!r}
import clampgrad
from clampgrad import _implementation
print(clampgrad.implementation, _implementation.functions.__file__.split("/")[-2])
"""


# What lies beside the library for CPUs: nothing, or the one of clampgrad-cuda, for CUDA 999.
COMPANIONS = {
    "nothing": shutil.rmtree,
    "one that fits": lambda folder: None,
    # As after `pip install --upgrade clampgrad`, which leaves clampgrad-cuda as it was.
    "a stale one": lambda folder: replace(folder / MODULE, HERE, NINES),
    # As in a build of torch that keeps its libraries elsewhere.
    "one that does not load": lambda folder: replace(
        folder / build.LIBRARY, "libtorch_cpu.so", "libtorch_gon.so"
    ),
    # As after `pip install --upgrade clampgrad torch`.
    "one of before this torch": lambda folder: folder.rename(folder.with_name("torch_0_1_cu999")),
}
WITHOUT = ("without its CUDA kernels", "clampgrad-cuda")
OTHER_CUDA = ("with CUDA 999, and this is torch", "with CUDA 998. To mend it, build")
UPGRADE = (
    "for torch 0.1 with CUDA 999, and this is torch",
    "install --upgrade clampgrad clampgrad-cuda",
)
# And the torch that is here; its CUDA; which library is loaded, and what the one warning says.
CHOICES = [
    ("nothing", f"{MINOR}.99", None, "cpu", ()),
    ("nothing", f"{MINOR}.0+cu999", "999.0", "cpu", ()),
    ("nothing", f"{MINOR}.1a0+git1", None, "cpu", ()),
    ("one that fits", torch.__version__, None, "cpu", ()),  # a torch for CPUs misses nothing
    ("one that fits", torch.__version__, "999.1", "cu999", ()),
    ("one that fits", torch.__version__, "998.1", "cpu", OTHER_CUDA),  # of PyTorch's own index
    ("a stale one", torch.__version__, "999.0", "cpu", WITHOUT),
    ("one that does not load", torch.__version__, "999.0", "cpu", WITHOUT),
    ("one of before this torch", torch.__version__, None, "cpu", ()),
    ("one of before this torch", torch.__version__, "999.0", "cpu", UPGRADE),
]  # fmt: skip


@about_the_library
@pytest.mark.parametrize("companion, version, cuda, loaded, phrases", CHOICES)
def test_which_library_is_loaded(copy, script, companion, version, cuda, loaded, phrases):
    """Patch releases and flavours of torch share one, unless there is one with kernels for their
    CUDA. Where that is there and cannot be used, a warning says so."""
    folders = {"cpu": "torch_" + MINOR.replace(".", "_")}
    folders["cu999"] = f"{folders['cpu']}_cu999"
    (copy / "_lib" / LIBRARY).rename(copy / "_lib" / folders["cpu"])
    shutil.copytree(copy / "_lib" / folders["cpu"], copy / "_lib" / folders["cu999"])
    COMPANIONS[companion](copy / "_lib" / folders["cu999"])
    out, warning = script(PRETEND.format(version=version, cuda=cuda), cwd=copy.parent)
    assert out.split() == ["compiled", folders[loaded]]
    assert all(text in warning for text in phrases) and warning.count("Warning") == bool(phrases)


@about_the_library
def test_a_module_takes_the_library_beside_it(copy, imported, tmp_path):
    """Whatever has the same name in LD_LIBRARY_PATH: what `cmake --install` has put
    there, of another torch perhaps."""
    (tmp_path / build.LIBRARY).write_text("it would be an error to load this")
    assert imported(LD_LIBRARY_PATH=str(tmp_path)) == ("compiled", "")


EXTENSION = """
namespace clampgrad { extern const char* const stamp; }
extern "C" const void* stamp() { return &clampgrad::stamp; }
"""
SHARED = """
import ctypes, sys, clampgrad
from pathlib import Path
ours = Path(clampgrad._implementation.functions.__file__).with_name(sys.argv[2])
ours, theirs = ctypes.CDLL(str(ours)), ctypes.CDLL(sys.argv[1])
theirs.stamp.restype = ctypes.c_void_p
symbol = ctypes.c_char_p.in_dll(ours, "_ZN9clampgrad5stampE")
assert theirs.stamp() == ctypes.addressof(symbol)
"""


@about_the_library
def test_an_extension_of_cpp_shares_the_library(script, tmp_path):
    """Where it would load a copy by itself, which would register the operators again."""
    (tmp_path / "extension.cpp").write_text(EXTENSION)
    copied = shutil.copy(PACKAGE / "_lib" / LIBRARY / build.LIBRARY, tmp_path)
    extension = tmp_path / "extension.so"
    linked = ("-shared", "-fPIC", copied, f"-Wl,-rpath,{tmp_path}", "-o", extension)
    run_checked("c++", tmp_path / "extension.cpp", *linked, "-Wl,--unresolved-symbols=ignore-all")
    script(SHARED, extension, build.LIBRARY)


@pytest.mark.parametrize("missing", [None, "there was no C++ compiler"])
def test_a_package_without_a_library(copy, script, missing):
    """A portable wheel says why if it is asked. A build that lacked something warns, too."""
    shutil.rmtree(copy / "_lib", ignore_errors=True)
    say(copy, MISSING=missing)
    ask = "from clampgrad.cli import main; main(['info', '--json'])"
    out, warning = script(ask, cwd=copy.parent, check=False)
    info = json.loads(out)
    assert info["implementation"] == "portable"
    assert "this installation has no compiled library" in info["because"]
    assert warning.count("Warning") == bool(missing) and (missing or "") in warning


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


def test_stubs_say_what_the_extension_has(tmp_path):
    pytest.importorskip("mypy", reason="mypy checks the types: install it")
    stubs = ("clampgrad._C", "clampgrad._implementation.build")
    (tmp_path / "allowed").write_text(r"clampgrad\._C\.Block")  # its metaclass is pybind11's
    command = ("-m", "mypy.stubtest", "--allowlist=allowed", *stubs)
    run_checked(sys.executable, *command, cwd=tmp_path)
