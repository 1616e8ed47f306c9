"""A library that would load beside libtorch and then break is refused: each
kind, as a compiler links it."""

import os
import runpy
import sys
from pathlib import Path

import pytest
import torch

from buildtools import linked
from buildtools.library import LIBRARY
from testing.processes import run, run_checked

ROOT = Path(__file__).resolve().parents[2]
TORCH = Path(torch.__file__).parent / "lib"
# It raises and catches, and hands a string to another library, as any extension does.
CODE = """
#include <stdexcept>
#include <string>
void elsewhere(const std::string&);
extern "C" void entry(int n) {
  try {
    elsewhere(std::string(n, 'x'));
  } catch (const std::exception& error) {
    throw std::runtime_error(error.what());
  }
}
"""


@pytest.fixture
def link(tmp_path, monkeypatch):
    """Compiles and links CODE with these options, as CXX gives them -> the library."""
    (tmp_path / "code.cpp").write_text(CODE)

    def link(*options, without=()):
        monkeypatch.setenv("CXX", f"c++ {' '.join(options)}")
        library, compiled = tmp_path / "library.so", tmp_path / "code.o"
        run_checked("c++", "-O2", "-fPIC", *options, "-c", tmp_path / "code.cpp", "-o", compiled)
        run_checked("c++", *options, *without, "-shared", compiled, "-o", library)
        return str(library)

    return link


def refused(library):
    """The sentence, and the library is gone."""
    signed = linked.Elf(Path(library)).compiler_names
    with pytest.raises(SystemExit) as ended:
        linked.reject_if_faulty(library, TORCH)
    assert library in str(ended.value) and signed in str(ended.value)
    assert not Path(library).exists()
    return str(ended.value)


# What the sentence says of a library that was compiled with these options; None: it is taken.
OPTIONS = {
    "": None,
    "-flto": None,
    "-fvisibility=hidden -Wl,--as-needed": None,
    # The error of a node would be raised in one runtime and caught in another.
    "-static-libstdc++": ("c++ -static-libstdc++", "libstdc++.so.6", "CXX="),
    "-static-libgcc": ("c++ -static-libgcc", "libgcc_s.so.1", "CXX="),
    "-static-libstdc++ -Wl,--exclude-libs,ALL": ("libstdc++.so.6",),  # which exports none of it
    "-D_GLIBCXX_USE_CXX11_ABI=0": ("-D_GLIBCXX_USE_CXX11_ABI=0 out of",),
}


@pytest.mark.parametrize("options", OPTIONS)
def test_options_that_a_machine_may_have_set(link, options):
    library, phrases = link(*options.split()), OPTIONS[options]
    if phrases is None:
        return linked.reject_if_faulty(library, TORCH)
    told = refused(library)
    assert all(text in told for text in phrases)


def test_an_openmp_runtime_beside_torchs(link, tmp_path):
    """As Clang's -fopenmp links one; GCC's is the one that libtorch brings."""
    name = tmp_path / "libomp.so.5"
    run_checked("c++", "-shared", f"-Wl,-soname,{name.name}", "-o", name, "-x", "c++", os.devnull)
    told = refused(link("-Wl,--no-as-needed", str(name)))
    assert "libomp.so.5" in told and "-fopenmp" in told
    linked.reject_if_faulty(link("-fopenmp", "-Wl,--no-as-needed"), TORCH)


def test_objects_that_the_linker_could_not_read(link):
    """It links nothing, and says so in a warning alone."""
    library = link("-flto", without=["-fno-lto"])
    if "entry" in linked.Elf(Path(library)).symbols:
        pytest.skip("this linker finds GCC's plugin by itself")
    told = refused(library)
    assert "empty" in told and "-flto" in told


CALL_NAN = """
import ctypes, sys
nan = ctypes.CDLL(sys.argv[1]).nan
nan.argtypes, nan.restype = [ctypes.c_float], ctypes.c_bool
print(int(nan(float("nan"))))
"""


def test_fast_math_has_no_effect(tmp_path, monkeypatch):
    """Where CXXFLAGS have it: a comparison of a NaN would be decided when it is compiled."""
    monkeypatch.delenv("CLAMPGRAD_SANITIZE", raising=False)
    flags = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")["FLAGS"]
    (tmp_path / "code.cpp").write_text('extern "C" bool nan(float x) { return x != x; }')

    def is_nan(*options):
        library = tmp_path / f"{len(options)}.so"
        code = [tmp_path / "code.cpp", "-fvisibility=default", "-shared", "-fPIC", "-o", library]
        run_checked("c++", "-O2", "-ffast-math", *options, *code)
        # In a process of its own: GCC links code to such a library by which loading it flushes
        # subnormal numbers, for as long as the process lives.
        return int(run_checked(sys.executable, "-c", CALL_NAN, library))

    assert is_nan(*flags) and not is_nan()


@pytest.mark.thorough
def test_a_build_ends_with_it(tree):
    """After the link, and before anything is packed. Two files stand for the sources, which take
    minutes: one for the library, and one for the module."""
    exported = '__attribute__((visibility("default")))'
    (tree / "code.cpp").write_text(f"{CODE}\n{exported} void elsewhere(const std::string&) {{}}")
    text = (tree / "setup.py").read_text()
    (tree / "python_code.cpp").write_text(f'{CODE}\nextern "C" void PyInit__C() {{ entry(1); }}')
    one = "\nsources = lambda out, cuda: [ROOT / 'code.cpp', ROOT / 'python_code.cpp']\n"
    (tree / "setup.py").write_text(text.replace("\ncommands =", f"{one}commands ="))

    def build(**variables):
        env = {**os.environ, "CLAMPGRAD_CUDA": "0", **variables}
        return run(sys.executable, "setup.py", "build_ext", "-b", "lib", cwd=tree, env=env)

    assert build().returncode == 0
    (module,), (library,) = (
        tree.glob(f"lib/clampgrad/_lib/*/{name}") for name in ("_C.*.so", LIBRARY)
    )
    assert library.name in linked.Elf(module).needed
    ended = build(LDFLAGS="-static-libstdc++")
    last = ended.stderr.splitlines()[-1]
    assert ended.returncode == 1 and "is refused" in last and "LDFLAGS=-static-libstdc++" in last
