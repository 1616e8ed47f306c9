"""CLAMPGRAD_GRADIENT pins a program that never imports clampgrad, and those that it starts."""

import os
import subprocess
import sys

import pytest

import clampgrad

pytestmark = pytest.mark.compiled("the portable pin sees calls from Python alone: test_portable.py")

# The gradient of torch.clamp at its lower bound: 1 under inclusive, 1/2 under half.
AT_A_BOUND = """
import torch
x = torch.zeros(1, requires_grad=True)
torch.clamp(x, 0, 1).backward()
print(x.grad.item())
"""


@pytest.fixture
def python(installed, tmp_path):
    def run(script, **variables):
        rest = {k: v for k, v in os.environ.items() if k != "CLAMPGRAD_GRADIENT"}
        return subprocess.run(
            [sys.executable, "-c", script],
            env={**rest, "PYTHONPATH": installed, **variables},
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )

    return run


@pytest.mark.parametrize("name, gradient", [("half", 0.5), ("inclusive", 1), ("min_norm", 0)])
def test_a_program_that_imports_torch_alone(python, name, gradient):
    run = python(AT_A_BOUND, CLAMPGRAD_GRADIENT=name)
    assert (run.stdout.strip(), run.stderr) == (str(float(gradient)), "")


def test_what_it_spawns(python):
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {AT_A_BOUND!r}])"
    assert python(script, CLAMPGRAD_GRADIENT="half").stdout.strip() == "0.5"


@pytest.mark.parametrize("autoload", ["0", "1"])
def test_a_program_that_imports_clampgrad_first(python, autoload):
    run = python(
        "import clampgrad" + AT_A_BOUND,
        CLAMPGRAD_GRADIENT="half",
        TORCH_DEVICE_BACKEND_AUTOLOAD=autoload,
    )
    assert (run.stdout.strip(), run.stderr) == ("0.5", "")


def test_without_the_variable_one_small_module_is_imported(python):
    """What it costs is in benchmarks/results/autoload.json; it imports nothing in its turn."""
    run = python("import torch, sys; print(*(m for m in sys.modules if 'clampgrad' in m))")
    assert (run.stdout.strip(), run.stderr) == ("_clampgrad_by_environment", "")
    script = """
import os, sys
before = set(sys.modules)
import _clampgrad_by_environment
_clampgrad_by_environment.pin()
print(set(sys.modules) - before)
"""
    assert python(script).stdout.strip() == "{'_clampgrad_by_environment'}"


def test_a_wrong_name_is_an_error_that_lists_the_names(python):
    run = python(AT_A_BOUND, CLAMPGRAD_GRADIENT="inclusiv")
    assert run.returncode
    assert "CLAMPGRAD_GRADIENT='inclusiv'" in run.stderr
    for name in clampgrad.CONVENTIONS:
        assert name in run.stderr


def test_nothing_runs_unpinned_where_the_compiled_implementation_is_required(python):
    both = {"CLAMPGRAD_PORTABLE": "1", "CLAMPGRAD_REQUIRE_COMPILED": "1"}  # an ImportError
    run = python(AT_A_BOUND, CLAMPGRAD_GRADIENT="half", **both)
    assert run.returncode and not run.stdout
    assert "CLAMPGRAD_PORTABLE and CLAMPGRAD_REQUIRE_COMPILED are both set" in run.stderr
    assert python(AT_A_BOUND, **both).returncode == 0  # no pin, no promise


def test_a_broken_package_is_one_warning(python):
    run = python(
        AT_A_BOUND,
        CLAMPGRAD_GRADIENT="half",
        CLAMPGRAD_PORTABLE="maybe",  # an ImportError
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() != "0.5"
    assert run.stderr.count("Warning: CLAMPGRAD_GRADIENT=half has no effect") == 1
