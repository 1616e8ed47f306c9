"""The package as it is installed: what it is called, what it says on a wrong torch, its types."""

import importlib.metadata
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import clampgrad

PACKAGE = Path(clampgrad.__file__).parent
TORCH = torch.__version__.split("+")[0]


def python(*arguments, **keywords):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, **keywords)


@pytest.fixture
def copy(tmp_path):
    """The package at a path with a space and letters that are not ASCII."""
    target = tmp_path / "ein Pfad, größer" / "clampgrad"
    shutil.copytree(PACKAGE, target)
    return target


def test_it_runs_from_any_path(copy):
    run = python("-c", "import clampgrad; print(clampgrad.__file__)", cwd=copy.parent)
    assert run.returncode == 0, run.stderr
    assert Path(run.stdout.strip()).parent == copy


def test_the_version_names_the_torch():
    assert clampgrad.__version__.endswith(f"+torch{TORCH}")
    assert clampgrad.__version__ == importlib.metadata.version("clampgrad")


def test_another_torch_is_one_clear_sentence(copy):
    (copy / "_built_for.py").write_text('TORCH = "2.10.0"\n')
    run = python("-c", "import clampgrad", cwd=copy.parent)
    assert run.returncode
    message = run.stderr.splitlines()[-1]
    assert message.startswith("ImportError: ")
    for part in ("built for torch 2.10.0", f"here is torch {TORCH}", "pip install"):
        assert part in message


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
        assert (PACKAGE / f"{stub.stem}.py").exists() or list(PACKAGE.glob(f"{stub.stem}.*.so"))


TYPED = """
import torch
import clampgrad

x = torch.ones(3)
y: torch.Tensor = clampgrad.clamp(x, 0, x, gradient="half")
clampgrad.clamp(x, "0")  # wrong: a bound
clampgrad.maximum(x, x, gradient="restoring")  # wrong: a gradient that is no derivative
clampgrad.clamp(x, 0, gradient="minnorm")  # wrong: a name
z: int = clampgrad.clamp_(x, 0)  # wrong: the result
with clampgrad.pin("half"):
    pass
"""


@pytest.mark.slow
def test_types_are_checked(tmp_path):
    """As a user's mypy sees them: every line marked as wrong, and no other, is an error."""
    pytest.importorskip("mypy", reason="mypy checks the types: install it")
    (tmp_path / "user.py").write_text(TYPED)
    run = python("-m", "mypy", "--strict", "user.py", cwd=tmp_path)
    found = {int(n) for n in re.findall(r"^user\.py:(\d+): error", run.stdout, re.MULTILINE)}
    wrong = {i for i, line in enumerate(TYPED.splitlines(), 1) if "# wrong" in line}
    assert found == wrong, run.stdout


@pytest.mark.slow
def test_stubs_say_what_the_extension_has(tmp_path):
    pytest.importorskip("mypy", reason="mypy checks the types: install it")
    run = python("-m", "mypy.stubtest", "clampgrad._C", "clampgrad._built_for", cwd=tmp_path)
    assert run.returncode == 0, run.stdout
