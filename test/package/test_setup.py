"""The build: what it says, what is packed, and which torch it is for."""

import os
import re
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from buildtools import cmake, stamp, torch_here
from buildtools.readme import readme
from buildtools.torch_here import RANGE, RELEASES
from codegen.generate import YAMLS
from testing.processes import BARE, run, run_checked

ROOT = Path(__file__).resolve().parents[2]


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_cmake_gets_what_the_cuda_kernels_need(monkeypatch, tmp_path):
    """`nox -s cpp` builds without them."""
    monkeypatch.setattr(cmake.setup, "sources", lambda out, cuda: [])
    monkeypatch.setattr(cmake, "cuda_build", lambda pip: (True, "it is pretended"))
    monkeypatch.setattr(cmake, "code", lambda: "sm_80+compute_80")
    monkeypatch.setenv("CUDA_HOME", "/a toolkit")
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0;9.0+PTX")
    text = cmake.script(tmp_path, "x86_64")
    assert '"CLAMPGRAD_WITH_CUDA=sm_80+compute_80")' in text
    assert 'set(toolkit "/a toolkit")' in text
    assert 'set(architectures "8.0" "9.0+PTX")' in text
    monkeypatch.setattr(cmake, "cuda_build", lambda pip: (False, "it is pretended"))
    assert "set(toolkit )" in cmake.script(tmp_path, "x86_64")


def test_an_index_shows_links_that_lead_somewhere():
    """They are relative in README.md, and lead into the repository once pyproject.toml has one."""
    text = (ROOT / "README.md").read_text()
    assert readme(project="") == text
    ours = "https://example.org/us/clampgrad"
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)]+)\)", readme(f'Repository = "{ours}"'))
    assert len(links) == text.count("](")
    for picture, link in links:
        kind, _, path = link.removeprefix(f"{ours}/").partition("/")
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
    for name in ("csrc/base/bits.h", "codegen/generate.py", *YAMLS):
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
    ("2.8.0", "", 0, ["NO COMPILED LIBRARY", "torch 2.8.0"]),
])  # fmt: skip
def test_a_torch_that_is_newer_ends_the_build(tree, tmp_path, torch, portable, code, says):
    """Beside another that has no library, the package is built all the same."""
    metadata = f"Metadata-Version: 2.1\nName: torch\nVersion: {torch}\n"
    write(tmp_path / f"torch-{torch}.dist-info/METADATA", metadata)
    env = os.environ | {"PYTHONPATH": str(tmp_path), "CLAMPGRAD_PORTABLE": portable}
    command = ("setup.py", "-q", "build_py", "--build-lib", tmp_path / "lib")
    ended = run(sys.executable, *command, cwd=tree, env=env)
    assert ended.returncode == code and all(text in ended.stderr for text in says), ended.stderr
    assert ended.stderr.count("\n") == 1 or not code, ended.stderr
    assert (tmp_path / "lib/clampgrad/__init__.py").exists() == (not code)


@pytest.mark.parametrize("torch, expected", [
    (None, [f"torch>={RELEASES[0]},<2.{torch_here.NEWEST[1] + 1}", "ninja"]),
    ("2.13.1+cpu", ["torch==2.13.*", "ninja"]),
    ("2.8.0", []),
    ("2.99.0", []),
])  # fmt: skip
def test_a_build_in_isolation_is_for_the_torch_of_the_environment(monkeypatch, torch, expected):
    monkeypatch.setattr(torch_here, "torch_of_the_environment", lambda: torch)
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
