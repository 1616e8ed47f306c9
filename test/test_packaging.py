"""The package as it is installed: what it is called, what it says on a wrong torch, its types."""

import importlib.metadata
import os
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
    shutil.copytree(PACKAGE, target, ignore=shutil.ignore_patterns("__pycache__"))
    return target


def test_it_runs_from_any_path(copy):
    run = python("-c", "import clampgrad; print(clampgrad.__file__)", cwd=copy.parent)
    assert run.returncode == 0, run.stderr
    assert Path(run.stdout.strip()).parent == copy


def test_the_version_names_the_torch():
    assert clampgrad.__version__.endswith(f"+torch{TORCH}")
    assert clampgrad.__version__ == importlib.metadata.version("clampgrad")


def python_with(variables, *arguments, **keywords):
    rest = {k: v for k, v in os.environ.items() if not k.startswith("CLAMPGRAD_")}
    return python(*arguments, env={**rest, **variables}, **keywords)


SHOW = "import clampgrad; print(clampgrad.implementation)"


@pytest.mark.compiled("it is about which library is loaded")
def test_another_minor_of_torch_is_one_warning_and_the_portable_implementation(copy):
    (copy / "_built_for.py").write_text('TORCH = "2.10.0"\n')
    run = python_with({}, "-c", SHOW, cwd=copy.parent)
    assert run.stdout.strip() == "portable", run.stderr
    assert run.stderr.count("Warning") == 1
    for part in ("for torch 2.10", f"here is torch {torch.__version__}", "CLAMPGRAD_PORTABLE=1"):
        assert part in run.stderr
    silent = python_with({"CLAMPGRAD_PORTABLE": "1"}, "-c", SHOW, cwd=copy.parent)
    assert (silent.stdout.strip(), silent.stderr) == ("portable", "")


@pytest.mark.compiled("it is about which library is loaded")
def test_another_minor_of_torch_is_one_clear_sentence_where_a_library_is_required(copy):
    (copy / "_built_for.py").write_text('TORCH = "2.10.0"\n')
    run = python_with({"CLAMPGRAD_REQUIRE_COMPILED": "1"}, "-c", SHOW, cwd=copy.parent)
    message = run.stderr.splitlines()[-1]
    assert message.startswith("ImportError: ")
    for part in ("for torch 2.10", f"here is torch {torch.__version__}", "pip install"):
        assert part in message


@pytest.mark.compiled("it is about which library is loaded")
def test_a_patch_release_of_torch_is_served(copy):
    minor = ".".join(TORCH.split(".")[:2])
    (copy / "_built_for.py").write_text(f'TORCH = "{minor}.99"\n')
    run = python_with({"CLAMPGRAD_REQUIRE_COMPILED": "1"}, "-c", SHOW, cwd=copy.parent)
    assert (run.stdout.strip(), run.stderr) == ("compiled", "")


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
    run = python(
        "-m",
        "mypy.stubtest",
        "clampgrad._C",
        "clampgrad._built_for",
        "clampgrad._version",
        cwd=tmp_path,
    )
    assert run.returncode == 0, run.stdout
