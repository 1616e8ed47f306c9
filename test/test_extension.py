"""How the extension is compiled: what GCC, Clang and MSVC are told, and what is missing without them."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools import extension  # noqa: E402

OF_BOTH = ("-Wall", "-fvisibility=hidden")


@pytest.fixture
def windows(monkeypatch):
    monkeypatch.setattr(extension, "WINDOWS", True)
    monkeypatch.setenv("CLAMPGRAD_CUDA", "0")
    monkeypatch.setenv("DISTUTILS_USE_SDK", "")  # so that what the build sets is undone
    monkeypatch.delenv("DISTUTILS_USE_SDK")


def test_gcc_and_clang_are_told_the_same():
    gcc, clang = extension.flags("c++ (GCC) 12.2.0"), extension.flags("clang version 14.0.6")
    assert set(gcc) - set(clang) == set(extension.GCC_ALONE) and set(OF_BOTH) < set(clang)
    assert "-fopenmp" not in gcc  # Note [One OpenMP runtime]


def test_msvc_is_told_what_it_knows(windows, monkeypatch):
    monkeypatch.setattr(extension.subprocess, "check_output", None)  # it has no --version
    library, _ = extension.extension()
    flags = library.extra_compile_args["cxx"]
    assert "/Zc:preprocessor" in flags and "-DCLAMPGRAD_EXPORTS" in flags
    assert all(flag.startswith(("/", "-D")) for flag in flags)
    assert extension.os.environ["DISTUTILS_USE_SDK"] == "1"


def test_the_compiler_that_is_missing_on_windows(windows, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(extension.shutil, "which", lambda name: name == "c++")
    assert "no cl on PATH" in extension.cannot_build()


@pytest.mark.parametrize("options", ["-isystem /usr/include", "-Wl,-O1 -specs '/a b/c'", ""])
def test_options_of_the_compiler_are_no_compilers(monkeypatch, options):
    monkeypatch.setattr(extension.shutil, "which", lambda name: name in ("ccache", "g++"))
    monkeypatch.setenv("CXX", f"ccache g++ {options}")
    assert "compiler" not in (extension.cannot_build() or "")
    monkeypatch.setenv("CXX", f"ccache clang++ {options}")
    assert "no clang++ on PATH" in extension.cannot_build()


def test_a_compiler_with_a_quoted_option_is_asked_for_its_version(monkeypatch, tmp_path):
    """The trial and the build read CXX alike; torch itself splits it at every space."""
    script = tmp_path / "a compiler"
    script.write_text('#!/bin/sh\n[ $# = 2 ] && [ "$1" = "-B/a b" ] && echo clang 14\n')
    script.chmod(0o755)
    monkeypatch.setenv("CLAMPGRAD_CUDA", "0")
    monkeypatch.setenv("CXX", f"'{script}' '-B/a b'")
    assert "compiler" not in (extension.cannot_build() or "")
    library, _ = extension.extension()
    assert "-fopenmp" not in library.extra_compile_args["cxx"]


def test_releases_are_compared_as_numbers():
    """As text, 2.9 is beyond 2.14, and a release candidate of 2.14 is none of it."""
    text = re.compile(r"__version__(\.split\([^)]*\)(\[[^]]*\])?)? *(<|>)=? *[\[\"']")
    for path in (
        p for f in ("benchmarks", "python", "test", "tools") for p in ROOT.glob(f"{f}/**/*.py")
    ):
        assert not text.search(path.read_text()), path


def test_msvc_has_not_both_sanitizers(windows, monkeypatch):
    monkeypatch.setattr(extension, "SANITIZED", True)
    with pytest.raises(SystemExit, match="CLAMPGRAD_SANITIZE"):
        extension.flags(None)
