"""CLAMPGRAD_GRADIENT pins a program that never imports clampgrad, and those that it
starts; `clampgrad run` sets it."""

import os

import pytest

import clampgrad

pytestmark = pytest.mark.thorough

# The gradient of torch.clamp at its lower bound: 1 under inclusive, 1/2 under half.
AT_A_BOUND = """
import torch
x = torch.zeros(1, requires_grad=True)
torch.clamp(x, 0, 1).backward()
print(x.grad.item())
"""


@pytest.fixture
def python(program):
    return lambda text, *options, **variables: program(*options, "-c", text, **variables)


@pytest.mark.parametrize(
    "before, options, variables",
    [
        ("", [], {}),
        ("import clampgrad", [], {}),
        ("import clampgrad", [], {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}),
        ("import clampgrad", ["-OO"], {}),  # no assertions, no docstrings
    ],
)
def test_a_program(python, before, options, variables):
    run = python(before + AT_A_BOUND, *options, CLAMPGRAD_GRADIENT="half", **variables)
    assert (run.stdout.strip(), run.stderr) == ("0.5", "")


def test_without_the_variable_one_small_module_is_imported(python):
    """It imports nothing in its turn."""
    run = python("import torch, sys; print(*(m for m in sys.modules if 'clampgrad' in m))")
    assert (run.stdout.strip(), run.stderr) == ("_clampgrad_by_environment", "")
    script = "import os, sys; before = set(sys.modules); import _clampgrad_by_environment as ours"
    script += "; ours.pin(); print(*(set(sys.modules) - before))"
    assert python(script).stdout.strip() == "_clampgrad_by_environment"


@pytest.mark.parametrize("name, meant", [("inclusiv", "inclusive"), ("MIN_NORM", "min_norm")])
@pytest.mark.parametrize("around", ["{}", "try: {}\nexcept Exception: pass"])
def test_a_wrong_name_ends_the_program_with_a_sentence_that_lists_the_names(
    python, name, meant, around
):
    """torch answers an Exception of an entry point with the advice to turn entry points off."""
    run = python(around.format("import torch") + "\nprint('unpinned')", CLAMPGRAD_GRADIENT=name)
    assert run.returncode and not run.stdout
    *_, last = run.stderr.splitlines()
    assert last.startswith(f"_clampgrad_by_environment.CannotPin: CLAMPGRAD_GRADIENT={name!r}")
    assert last.endswith(f"did you mean {meant!r}?")
    assert "AUTOLOAD" not in run.stderr
    for name in clampgrad.CONVENTIONS:
        assert name in last


def test_another_module_of_the_name_is_one_warning(python):
    """It is not mistaken for a partly imported package, which would pin later."""
    another = "import sys, types; sys.modules['clampgrad'] = types.ModuleType('clampgrad')"
    run = python(another + AT_A_BOUND, CLAMPGRAD_GRADIENT="half")
    assert run.returncode == 0 and run.stdout.strip() != "0.5"
    assert run.stderr.count("Warning: CLAMPGRAD_GRADIENT=half has no effect") == 1


BOTH = {"CLAMPGRAD_PORTABLE": "1", "CLAMPGRAD_REQUIRE_COMPILED": "1"}  # an ImportError


@pytest.mark.parametrize(
    "variables, says",
    [
        (BOTH, "CLAMPGRAD_PORTABLE and CLAMPGRAD_REQUIRE_COMPILED are both set"),
        (
            {"CLAMPGRAD_VERBOSE": "yes"},
            "CannotPin: CLAMPGRAD_GRADIENT='half': CLAMPGRAD_VERBOSE='yes'",
        ),
    ],
)
def test_wrong_switches_end_the_program_too(python, variables, says):
    run = python(AT_A_BOUND, CLAMPGRAD_GRADIENT="half", **variables)
    assert run.returncode and not run.stdout and says in run.stderr
    assert python(AT_A_BOUND, **variables).returncode == 0  # no pin, no promise


# The texts in place of the package and of its _pin.py, and why the program ends, if it does.
PIN = "def set_pin_in_words(name): "
WRONG = {
    "a syntax error": ("from", PIN, None),
    "an error at its import": ("1 / 0", PIN, None),
    "an ImportError": ("", "", None),
    "an error in the pin": ("", f"{PIN}{{}}[name]", None),
    "a pin that is refused": ("", f"{PIN}raise RuntimeError('out of reach')", "out of reach"),
}


ASKED = [{}, {"CLAMPGRAD_REQUIRE_COMPILED": "1"}, {"PYTHONWARNINGS": "error::UserWarning"}]


@pytest.mark.parametrize("asked", ASKED, ids="".join)
@pytest.mark.parametrize("wrong", WRONG)
def test_beside_a_broken_package(python, installed, tmp_path, wrong, asked):
    """torch is imported, and one warning says that nothing is pinned. If the pin is refused, or if
    the variables require one, that is an error with our sentence, whatever the reason."""
    text, pin, refused = WRONG[wrong]
    package = tmp_path / "wrong/clampgrad"
    (package / "_pin").mkdir(parents=True)
    (package / "__init__.py").write_text(text)
    (package / "_pin/pin.py").write_text(pin)
    path = f"{package.parent}{os.pathsep}{installed}"
    run = python(AT_A_BOUND, CLAMPGRAD_GRADIENT="half", PYTHONPATH=path, **asked)
    if asked or refused:
        last = run.stderr.splitlines()[-1]
        assert run.returncode and not run.stdout
        assert last.startswith("_clampgrad_by_environment.CannotPin: ")
        assert (refused or "") in last or asked
        assert "AUTOLOAD" not in run.stderr
    else:
        assert run.returncode == 0, run.stderr
        assert run.stdout.strip() != "0.5"
        assert run.stderr.count("Warning: CLAMPGRAD_GRADIENT=half has no effect") == 1


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["run", "--gradient", "nope", "train.py"], "unknown gradient 'nope'; expected one of"),
        (["run", "--gradient", "half", "--maximize", "train.py"], "maximize=True does not apply"),
        (["run", "train.py"], "required: --gradient"),
        (["run", "train.py", "--gradient", "half"], "--gradient comes before the program"),
    ],
)
def test_wrong_arguments_of_run(arguments, message, folder_of_programs, command):
    (folder_of_programs / "train.py").touch()
    code, out, err = command(*arguments)
    assert (code, clampgrad.pin.current(), out) == (2, None, "") and message in err
