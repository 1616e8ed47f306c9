"""The build: flags of each compiler and file, what metadata need, and which torch it is for."""

import ctypes
import importlib.metadata
import os
import re
import runpy
import shutil
import sys
from pathlib import Path

import pytest

from buildtools import cmake, torch_here
from common import checked, run

ROOT = Path(__file__).resolve().parents[2]

RANGE = torch_here.RANGE


def loaded(monkeypatch, **environment):
    """setup.py, read and not run."""
    for name in ("CLAMPGRAD_DEBUG", "CLAMPGRAD_SANITIZE"):
        monkeypatch.setenv(name, environment.get(name, ""))
    return runpy.run_path(str(ROOT / "setup.py"), run_name="setup")


# ---- Flags ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("debug", ["0", "1"])
def test_loops_get_what_the_others_do_not(monkeypatch, debug):
    build = loaded(monkeypatch, CLAMPGRAD_DEBUG=debug)
    flags_of = build["flags_of_files"]("x86_64")
    files = {path.name for path in (ROOT / "csrc/kernels/cpu").glob("loops_*.cpp")}
    assert files == flags_of.keys()
    assert all(("-O3" in flags) == (debug == "0") for flags in flags_of.values())
    assert "-mavx512bw" in flags_of["loops_avx512.cpp"]
    # Note [One OpenMP runtime]
    assert not [flag for flag in build["FLAGS"] if flag.startswith("-m") or "openmp" in flag]
    others = build["flags_of_files"]("aarch64").values()
    assert not [flag for flags in others for flag in flags if flag.startswith("-m")]


@pytest.mark.parametrize("compiler", ["g++", "clang++", "clang++-19"])
def test_compilers_take_the_flags_in_silence(monkeypatch, tmp_path, compiler):
    """Whichever it is: the build does not ask."""
    if not shutil.which(compiler):
        pytest.skip(f"there is no {compiler}")
    (tmp_path / "one.cpp").write_text("int one() { return 1; }\n")
    build = loaded(monkeypatch)
    flags = [*build["OPTIMISATION"], *build["FLAGS"]]
    ended = run(compiler, *flags, "-c", "one.cpp", "-o", os.devnull, cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")


SETUP = """
import sys
sys.path.insert(0, {root!r})
from setuptools import Extension, setup
from buildtools.flags_of_files import build_extension
extension = Extension(
    "two", ["one.cpp", "other.cpp"], language="c++", extra_compile_args={{"cxx": ["-DVALUE=1"]}}
)
own = {{"other.cpp": ["-UVALUE", "-DVALUE=2"]}}
build_ext = build_extension(own).with_options(use_ninja={ninja})
setup(name="two", ext_modules=[extension], cmdclass={{"build_ext": build_ext}})
"""


@pytest.mark.parametrize("ninja", [True, False])
def test_a_file_has_flags_of_its_own(tmp_path, ninja):
    """It also has those of all files, even at a path with a space."""
    tmp_path /= "a folder"
    tmp_path.mkdir()
    for name in ("one", "other"):
        (tmp_path / f"{name}.cpp").write_text(f'extern "C" int {name}() {{ return VALUE; }}\n')
    (tmp_path / "setup.py").write_text(SETUP.format(root=str(ROOT), ninja=ninja))
    checked(sys.executable, "setup.py", "-q", "build_ext", "--build-lib", ".", cwd=tmp_path)
    (file,) = tmp_path.glob("two*.so")
    library = ctypes.CDLL(str(file))
    assert (library.one(), library.other()) == (1, 2)


@pytest.mark.parametrize("kind", ["its own", "none"])
def test_which_ninja_builds(tmp_path, kind):
    """The environment's, even if not activated, because the machine's may be old or broken; without any, an error."""
    for name in ("one", "other"):
        (tmp_path / f"{name}.cpp").write_text("")
    hidden = "import sys; sys.modules['ninja'] = None\n" if kind == "none" else ""
    (tmp_path / "setup.py").write_text(hidden + SETUP.format(root=str(ROOT), ninja=True))
    machine = tmp_path / "bin"
    machine.mkdir()
    (machine / "ninja").write_text("#!/bin/sh\nexit 1\n")
    (machine / "ninja").chmod(0o755)
    environment = {**os.environ, "PATH": f"{machine}:{os.environ['PATH']}"}
    command = sys.executable, "setup.py", "build_ext", "--build-lib", "."
    told = checked(*command, cwd=tmp_path, env=environment)
    with_ninja = len(list(tmp_path.rglob(".ninja_log")))
    assert (with_ninja, "pip install ninja" in told) == (
        (2, False) if kind == "its own" else (0, True)
    )


def test_cmake_gets_the_same(monkeypatch, tmp_path):
    loops = ROOT / "csrc/kernels/cpu/loops_avx2.cpp"
    python = ROOT / "csrc/python/module.cpp"
    monkeypatch.setattr(cmake.setup, "sources", lambda out, cuda: [loops, python])
    monkeypatch.setattr(cmake, "cuda_build", lambda: (True, "it is pretended"))
    monkeypatch.setattr(cmake, "code", lambda: "sm_80+compute_80")
    monkeypatch.setenv("CUDA_HOME", "/a toolkit")
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0;9.0+PTX")
    text = cmake.script(tmp_path, "x86_64")
    assert f'set(sources "{loops.as_posix()}")' in text  # and nothing with Python
    assert all(f'"{flag}"' in text for flag in cmake.setup.FLAGS)
    assert "-mavx2" in text and "-mavx2" not in cmake.script(tmp_path, "aarch64")
    assert '"CLAMPGRAD_WITH_CUDA=sm_80+compute_80")' in text
    assert 'set(toolkit "/a toolkit")' in text and 'set(architectures "8.0" "9.0+PTX")' in text
    monkeypatch.setattr(cmake, "cuda_build", lambda: (False, "it is pretended"))
    assert "set(toolkit )" in cmake.script(tmp_path, "x86_64")


# ---- Metadata ------------------------------------------------------------------------------------


def only(tmp_path, *distributions, torch=None):
    """A folder with only these distributions of this environment, and the metadata of a torch."""
    folder = tmp_path / "site"
    folder.mkdir()
    for name in distributions:
        files = importlib.metadata.files(name)
        for top in {file.parts[0] for file in files if len(file.parts) > 1} - {".."}:
            (folder / top).symlink_to(files[0].locate().parent.parent / top)
    if torch:
        info = folder / f"torch-{torch}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {torch}\n")
        (folder / "torch.py").write_text("raise SystemExit('torch was imported')\n")
    return folder


METADATA = """
import os, sys
sys.path.insert(0, ".")
folder = sys.argv[1]  # setuptools writes to sys.argv
from buildtools import backend
name = backend.prepare_metadata_for_build_wheel(folder)
print(open(os.path.join(folder, name, "METADATA")).read())
"""


@pytest.mark.parametrize("torch", [None, "2.13.0"])
def test_metadata_need_no_torch_and_no_compiler(tree, tmp_path, torch):
    """An installed torch is not imported, and no compiler is started."""
    called = tmp_path / "called"
    for name in ("c++", "g++", "cc", "nvcc"):
        script = tmp_path / "bin" / name
        script.parent.mkdir(exist_ok=True)
        script.write_text(f"#!/bin/sh\necho $0 $@ >> {called}\nexit 1\n")
        script.chmod(0o755)
    env = {
        "PATH": f"{tmp_path / 'bin'}:{os.defpath}",
        "PYTHONPATH": str(only(tmp_path, "setuptools", torch=torch)),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    # Without site-packages.
    out = checked(sys.executable, "-S", "-c", METADATA, ".", cwd=tree, env=env)
    assert "Version: 0.1.0" in out and not called.exists()


# ---- Which torch ---------------------------------------------------------------------------------


def build(tree, tmp_path, torch, **environment):
    env = {
        "PATH": str(tmp_path),  # no compiler
        "PYTHONPATH": str(only(tmp_path, "setuptools", "PyYAML", torch=torch)),
        **environment,
    }
    command = ["setup.py", "-q", "build_py", "--build-lib", tmp_path / "lib"]
    return run(sys.executable, "-S", *command, cwd=tree, env=env)


def test_a_torch_that_is_newer_ends_the_build(tree, tmp_path):
    ended = build(tree, tmp_path, "2.99.0")
    assert ended.returncode == 1 and ended.stderr.count("\n") == 1, ended.stderr
    assert all(text in ended.stderr for text in ("torch 2.99.0", RANGE, "CLAMPGRAD_PORTABLE=1"))


@pytest.mark.parametrize("torch, portable", [("2.99.0", "1"), ("2.8.0", "")])
def test_what_has_no_library_is_built_all_the_same(tree, tmp_path, torch, portable):
    ended = build(tree, tmp_path, torch, CLAMPGRAD_PORTABLE=portable)
    assert ended.returncode == 0, ended.stderr
    assert ("NO COMPILED LIBRARY" in ended.stderr) == (not portable)


@pytest.mark.parametrize("torch, expected", [
    (None, [f"torch>={torch_here.RELEASES[0]},<2.{torch_here.NEWEST[1] + 1}", "ninja"]),
    ("2.13.1+cpu", ["torch==2.13.*", "ninja"]),
    ("2.8.0", []),
    ("2.99.0", []),
])  # fmt: skip
def test_a_build_in_isolation_is_for_the_torch_of_the_environment(
    monkeypatch, tmp_path, torch, expected
):
    folder = only(tmp_path, torch=torch)
    monkeypatch.setattr(torch_here.sysconfig, "get_path", lambda name: str(folder))
    assert torch_here.requirements() == expected


@pytest.fixture
def here(monkeypatch):
    monkeypatch.setattr(torch_here, "version", lambda name: torch_here.RELEASES[0])
    return lambda *names: monkeypatch.setattr(torch_here.shutil, "which", lambda n: n in names)


@pytest.mark.parametrize("options", ["-isystem /usr/include", "-Wl,-O1 -specs '/a b/c'", ""])
def test_options_of_the_compiler_are_no_compilers(here, monkeypatch, options):
    here("ccache", "g++")
    monkeypatch.setenv("CXX", f"ccache g++ {options}")
    assert "compiler" not in (torch_here.cannot_build() or "")
    monkeypatch.setenv("CXX", f"ccache clang++ {options}")
    assert "no clang++ on PATH" in torch_here.cannot_build()
    monkeypatch.delenv("CXX")
    monkeypatch.setattr(sys, "platform", "win32")
    assert "Windows" in torch_here.cannot_build()


# ---- The releases --------------------------------------------------------------------------------


def test_the_releases_are_those_of_one_file():
    """Pages for people repeat the first and the last of them, and one of them as an example."""
    for page in ("README.md", "docs/install.md", "CHANGELOG.md"):
        text = (ROOT / page).read_text()
        assert {*re.findall(r"\b2\.\d+ to 2\.\d+\b(?! times)", text)} == {RANGE}, page
    usual = re.search(r"^TORCH \?= (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    assert usual in torch_here.RELEASES
    for page in ("README.md", "docs/install.md", "CONTRIBUTING.md"):
        text = (ROOT / page).read_text()
        named = re.findall(r"(?:torch==|TORCH=|RELEASES=)([\d.]+)", text)
        assert named and {*named} <= {*torch_here.RELEASES}, page
        assert usual in text


def test_releases_are_compared_as_numbers():
    """Compared as text, 2.9 would be beyond 2.14. A release candidate of 2.14 does not count as 2.14."""
    text = re.compile(r"__version__(\.split\([^)]*\)(\[[^]]*\])?)? *(<|>)=? *[\[\"']")
    for folder in ("benchmarks", "buildtools", "lab", "python", "test"):
        for path in ROOT.glob(f"{folder}/**/*.py"):
            assert not text.search(path.read_text()), path
