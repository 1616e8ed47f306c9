"""The build: flags of each compiler and file, what metadata need, what is
packed, and which torch it is for."""

import ctypes
import importlib.metadata
import os
import re
import runpy
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from buildtools import cmake, stamp, torch_here
from buildtools.torch_here import RANGE, RELEASES
from testing.processes import BARE, run, run_checked

ROOT = Path(__file__).resolve().parents[2]


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


# ---- Flags ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("debug", ["0", "1"])
def test_loops_get_what_the_others_do_not(monkeypatch, debug):
    monkeypatch.setenv("CLAMPGRAD_DEBUG", debug)
    monkeypatch.delenv("CLAMPGRAD_SANITIZE", raising=False)
    build = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")  # read, and not run
    flags_of = build["flags_of_files"]("x86_64")
    files = {path.name for path in (ROOT / "csrc/kernels/cpu").glob("loops_*.cpp")}
    assert files == flags_of.keys()
    assert all(("-O3" in flags) == (debug == "0") for flags in flags_of.values())
    assert "-mavx512bw" in flags_of["loops_avx512.cpp"]
    # Note [One OpenMP runtime]
    assert not [flag for flag in build["FLAGS"] if flag.startswith("-m") or "openmp" in flag]
    others = build["flags_of_files"]("aarch64").values()
    assert not [flag for flags in others for flag in flags if flag.startswith("-m")]


SETUP = """
import sys
sys.path.insert(0, {root!r})
from setuptools import Extension, setup
from buildtools.flags_of_files import build_extension
extension = Extension(
    "two", ["one.cpp", "other.cpp"], language="c++", extra_compile_args={{"cxx": ["-DVALUE=1"]}}
)
own = {{"other.cpp": ["-UVALUE", "-DVALUE=2"]}}
setup(name="two", ext_modules=[extension], cmdclass={{"build_ext": build_extension(own)}})
"""


@pytest.mark.parametrize("ninja", ["its own", "none"])
def test_a_file_has_flags_of_its_own(tmp_path, ninja):
    """Beside those of all files, even at a path with a space. The environment's ninja builds,
    even if not activated, because the machine's may be old or broken; without any, torch
    builds, and a line says so."""
    tree, machine = tmp_path / "a folder", tmp_path / "bin"
    for name in ("one", "other"):
        write(tree / f"{name}.cpp", f'extern "C" int {name}() {{ return VALUE; }}\n')
    hidden = "import sys; sys.modules['ninja'] = None\n" if ninja == "none" else ""
    write(tree / "setup.py", hidden + SETUP.format(root=str(ROOT)))
    write(machine / "ninja", "#!/bin/sh\nexit 1\n").chmod(0o755)
    env = {**os.environ, "PATH": f"{machine}:{os.environ['PATH']}"}
    command = sys.executable, "setup.py", "build_ext", "--build-lib", "."
    told = run_checked(*command, cwd=tree, env=env)
    with_ninja = len(list(tree.rglob(".ninja_log")))
    assert (with_ninja, "pip install ninja" in told) == ((0, True) if hidden else (2, False))
    (file,) = tree.glob("two*.so")
    library = ctypes.CDLL(str(file))
    assert (library.one(), library.other()) == (1, 2)


def test_cmake_gets_the_same(monkeypatch, tmp_path):
    loops, python = ROOT / "csrc/kernels/cpu/loops_avx2.cpp", ROOT / "csrc/python/module.cpp"
    monkeypatch.setattr(cmake.setup, "sources", lambda out, cuda: [loops, python])
    monkeypatch.setattr(cmake, "cuda_build", lambda pip: (True, "it is pretended"))
    monkeypatch.setattr(cmake, "code", lambda: "sm_80+compute_80")
    monkeypatch.setenv("CUDA_HOME", "/a toolkit")
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0;9.0+PTX")
    text = cmake.script(tmp_path, "x86_64")
    for line in (
        f'set(sources "{loops.as_posix()}")',  # and nothing with Python
        '"CLAMPGRAD_WITH_CUDA=sm_80+compute_80")',
        'set(toolkit "/a toolkit")',
        '-mavx2"',
        'set(architectures "8.0" "9.0+PTX")',
        *(f'"{flag}"' for flag in (*cmake.setup.FLAGS, *cmake.setup.LIBRARY_LINK_FLAGS)),
    ):
        assert line in text
    monkeypatch.setattr(cmake, "cuda_build", lambda pip: (False, "it is pretended"))
    elsewhere = cmake.script(tmp_path, "aarch64")
    assert "set(toolkit )" in elsewhere and "-mavx2" not in elsewhere


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
        metadata = f"Metadata-Version: 2.1\nName: torch\nVersion: {torch}\n"
        write(folder / f"torch-{torch}.dist-info/METADATA", metadata)
        write(folder / "torch.py", "raise SystemExit('torch was imported')\n")
    return folder


@pytest.fixture
def bare(tree, tmp_path):
    """Runs Python in a copy of the sources where there are only these distributions,
    and no compiler that works."""
    for name in ("c++", "g++", "cc", "nvcc"):
        write(tmp_path / "bin" / name, "#!/bin/sh\ntouch $0.called\nexit 1\n").chmod(0o755)

    def run_python(*command, distributions, torch, **environment):
        site = only(tmp_path, *distributions, torch=torch)
        env = {"PATH": f"{tmp_path}/bin:{os.defpath}", "PYTHONPATH": str(site), **environment}
        ended = run(sys.executable, "-BS", *command, cwd=tree, env=env)  # without site-packages
        assert not [*tmp_path.glob("bin/*.called")]
        return ended

    return run_python


METADATA = "from buildtools import backend; backend.prepare_metadata_for_build_wheel('.')"


@pytest.mark.parametrize("torch", [None, "2.13.0"])
def test_metadata_need_no_torch_and_no_compiler(bare, tree, torch):
    """An installed torch is not imported, and no compiler is started."""
    ended = bare("-c", METADATA, distributions=["setuptools"], torch=torch)
    assert ended.returncode == 0, ended.stderr
    (metadata,) = tree.glob("*.dist-info/METADATA")
    version = re.search(r'^version = "(.*)"', (tree / "pyproject.toml").read_text(), re.M)[1]
    assert f"\nVersion: {version}\n" in metadata.read_text()


@pytest.mark.parametrize("published", [False, True])
def test_an_index_shows_links_that_lead_somewhere(bare, tree, published):
    """They are relative in README.md, and lead into the repository once pyproject.toml has one."""
    if published:
        with (tree / "pyproject.toml").open("a") as project:
            project.write('\n[project.urls]\nRepository = "https://example.org/us/clampgrad"\n')
    ended = bare("-c", METADATA, distributions=["setuptools"], torch=None)
    assert ended.returncode == 0, ended.stderr
    (metadata,) = tree.glob("*.dist-info/METADATA")
    head, _, text = metadata.read_text().partition("\n\n")
    assert "Description-Content-Type: text/markdown" in head
    readme = (tree / "README.md").read_text()
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)]+)\)", text)
    if not published:
        assert text.strip() == readme.strip()
        return
    assert len(links) == readme.count("](")
    for picture, link in links:
        kind, _, path = link.removeprefix("https://example.org/us/clampgrad/").partition("/")
        assert kind == ("raw" if picture else "blob"), link
        assert (ROOT / path.partition("/")[2].partition("#")[0]).exists(), link


def test_an_old_setuptools_is_one_sentence(tmp_path):
    write(tmp_path / "setuptools.py", "__version__ = '65.5.0'\n")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = run(sys.executable, "-c", "import buildtools.backend", cwd=ROOT, env=env)
    assert ended.returncode == 1 and ended.stderr.count("\n") == 1, ended.stderr
    assert all(part in ended.stderr for part in ("setuptools 77", "65.5.0", "pip install"))


# ---- Packing -------------------------------------------------------------------------------------

STALE = ("_lib/torch_2_13/_C.so", "gone.py")
# Into the package, by the build.
WRITTEN = [
    f"_contract/{name}" for name in ("gradients.py", "messages.json", "schemas.json", "table.json")
]
WRITTEN += ["_implementation/build.py"]


def test_nothing_of_an_earlier_build_is_packed(tree, tmp_path):
    """What earlier builds leave in setuptools' folder and beside the sources. The
    environment has next to nothing."""
    for folder, names in (("build/lib", STALE), ("python", (STALE[0], *WRITTEN))):
        for name in names:
            write(tree / folder / "clampgrad" / name, "stale")
    env = os.environ | BARE | {"CLAMPGRAD_PORTABLE": "1"}
    for kind in ("bdist_wheel", "sdist"):
        run_checked(sys.executable, "setup.py", "-q", kind, "-d", tmp_path, cwd=tree, env=env)
    (wheel,), (sources,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        top = {name.split("/")[0].split("-")[0] for name in archive.namelist()}
        assert top == {"clampgrad", "_clampgrad_by_environment.py"}
        packed = {name.removeprefix("clampgrad/") for name in archive.namelist()}
        assert packed >= {"py.typed", "_C.pyi", *WRITTEN} and not packed & {*STALE}
        for name in WRITTEN:
            assert archive.read(f"clampgrad/{name}") != b"stale"
    with tarfile.open(sources) as archive:
        names = [name.partition("/python/clampgrad/")[2] for name in archive.getnames()]
    assert "__init__.py" in names and not {*names} & {*STALE, *WRITTEN}


def test_the_hash_is_of_all_that_a_library_is_made_from(tree):
    of_sources = stamp.sources(tree)
    assert of_sources == stamp.sources(ROOT)
    for name in ("csrc/base/bits.h", "codegen/generate.py", "derivatives.yaml", "conventions.yaml"):
        text = (tree / name).read_text()
        (tree / name).write_text(f"{text}\n")
        assert stamp.sources(tree) != of_sources, name
        (tree / name).write_text(text)
    shutil.move(tree / "csrc/base/bits.h", tree / "csrc/base/other.h")
    assert stamp.sources(tree) != of_sources


# ---- Which torch ---------------------------------------------------------------------------------


@pytest.mark.parametrize("torch, portable, code, says", [
    ("2.99.0", "", 1, ["torch 2.99.0", RANGE, "CLAMPGRAD_PORTABLE=1"]),
    ("2.99.0", "1", 0, []),
    ("2.8.0", "", 0, ["torch 2.8.0"]),
])  # fmt: skip
def test_a_torch_that_is_newer_ends_the_build(bare, tmp_path, torch, portable, code, says):
    """Beside another that has no library, the package is built all the same."""
    command = ["setup.py", "-q", "build_py", "--build-lib", tmp_path / "lib"]
    needed = {"distributions": ["setuptools", "PyYAML"], "torch": torch}
    ended = bare(*command, **needed, CLAMPGRAD_PORTABLE=portable)
    assert ended.returncode == code and all(text in ended.stderr for text in says), ended.stderr
    assert ("NO COMPILED LIBRARY" in ended.stderr) == (torch == "2.8.0")
    assert ended.stderr.count("\n") == 1 or not code, ended.stderr


@pytest.mark.parametrize("torch, expected", [
    (None, [f"torch>={RELEASES[0]},<2.{torch_here.NEWEST[1] + 1}", "ninja"]),
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


@pytest.mark.parametrize("options", ["-isystem /usr/include", "-Wl,-O1 -specs '/a b/c'", ""])
def test_options_of_the_compiler_are_no_compilers(monkeypatch, options):
    monkeypatch.setattr(torch_here, "version", lambda name: RELEASES[0])
    monkeypatch.setattr(torch_here.shutil, "which", {"ccache": "/ccache", "g++": "/g++"}.get)
    monkeypatch.setenv("CXX", f"ccache g++ {options}")
    assert "compiler" not in (torch_here.find_missing_requirement() or "")
    monkeypatch.setenv("CXX", f"ccache clang++ {options}")
    assert "no clang++ on PATH" in torch_here.find_missing_requirement()
    monkeypatch.setattr(sys, "platform", "win32")
    assert "Windows" in torch_here.find_missing_requirement()


# ---- The releases --------------------------------------------------------------------------------


def test_the_releases_are_those_of_one_file():
    """Pages for people repeat the first and the last of them, and one of them as an example."""
    ranges = re.compile(r"\b2\.\d+ to 2\.\d+\b(?! times)")
    for page in ("README.md", "docs/install.md"):
        assert {*ranges.findall((ROOT / page).read_text())} == {RANGE}, page
    # What an earlier version said stays as it was.
    parts = re.split(r"^## .*\n", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    newest = next(filter(str.strip, parts[1:]))
    assert {*ranges.findall(newest)} <= {RANGE}, newest
    usual = re.search(r"^TORCH \?= (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    assert usual in RELEASES
    for page in ("README.md", "docs/install.md", "CONTRIBUTING.md"):
        text = (ROOT / page).read_text()
        named = re.findall(r"(?:torch==|TORCH=|RELEASES=)([\d.]+)", text)
        assert named and {*named} <= {*RELEASES}, page
        assert usual in text
