"""The Pythons that a library gets modules for, by their headers."""

import re
import sys
from importlib.machinery import EXTENSION_SUFFIXES

import pytest

from buildtools import library


def test_a_python_is_named_by_its_headers_or_its_command(tmp_path):
    """A folder of headers says which Python it is of, and need not be this one's."""
    here = library.this_python()
    assert here.module.endswith(tuple(EXTENSION_SUFFIXES))
    assert library.python_of(str(here.headers)) == here == library.python_of(sys.executable)
    version = "#define PY_MAJOR_VERSION\t3\n#define PY_MINOR_VERSION\t14\n"
    (tmp_path / "patchlevel.h").write_text(version)
    other = library.python_of(str(tmp_path))
    module = re.sub(r"cpython-\d+", "cpython-314", here.module)
    assert other == library.Python(tmp_path, module)
    (tmp_path / "patchlevel.h").unlink()
    with pytest.raises(SystemExit, match="no headers"):
        library.python_of(str(tmp_path))
    with pytest.raises(SystemExit, match="no Python, and no folder"):
        library.python_of(str(tmp_path / "python3.14"))


def test_pythons_without_headers_are_passed_over(tmp_path, monkeypatch):
    """Those on PATH that the project is for; a name that pyenv has not chosen is none."""
    for version, body in (("3.10", "exit 127"), ("3.12", f"echo {tmp_path}"), ("3.9", "exit 1")):
        script = tmp_path / f"python{version}"
        script.write_text(f"#!/bin/sh\n{body}\n")
        script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setattr(library, "PYTHONS", ["3.10", "3.12"])
    assert library.pythons_here() == []
    (tmp_path / "patchlevel.h").write_text(
        "#define PY_MAJOR_VERSION 3\n#define PY_MINOR_VERSION 12\n"
    )
    assert library.pythons_here() == [str(tmp_path)]
