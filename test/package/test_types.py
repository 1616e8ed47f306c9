"""Type checkers and editors see every public name, the types of functions, and nothing else."""

import ast
import re
import sys
from pathlib import Path

import pytest

import clampgrad
from testing.processes import run

SAMPLE = Path(__file__).with_name("typed_sample.py")


def test_the_sample_uses_every_public_name():
    nodes = ast.walk(ast.parse(SAMPLE.read_text()))
    used = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    public = {*clampgrad.__all__, *clampgrad.nn.__all__, "__version__"}
    public |= {n for n in vars(clampgrad.pin) if not n.startswith("_")}
    assert public - used == set()


def test_dir_shows_what_is_public():
    assert set(dir(clampgrad)) == {*clampgrad.__all__, "__version__"}
    assert set(dir(clampgrad.nn)) == set(clampgrad.nn.__all__)
    with pytest.raises(AttributeError) as caught:
        clampgrad.clmap  # noqa: B018
    # Python suggests from these.
    assert (caught.value.name, caught.value.obj) == ("clmap", clampgrad)


# Every line marked as wrong, and no other, is an error.
WRONG = """
import torch
import clampgrad

x = torch.ones(3)
clampgrad.clamp(x, "0")  # wrong: a bound
clampgrad.maximum(x, x, gradient="restoring")  # wrong: a gradient that is no derivative
clampgrad.clamp(x, 0, gradient="minnorm")  # wrong: a name
z: int = clampgrad.clamp_(x, 0)  # wrong: the result
clampgrad.pin("instaled")  # wrong: a name
clampgrad.clamp_mingrad(x)  # wrong: there is no such function
clampgrad.nn.Clamp(0, gradient="halff")  # wrong: a name
clampgrad.nn.convert(torch.nn.ReLU()).in_features.bit_length  # wrong: the model is no Linear
clampgrad.nn.set_gradient(torch.nn.ReLU(), "halff")  # wrong: a name


@clampgrad.pin("half")
def step(n: int) -> str:
    return str(n)


step("1")  # wrong: the argument
step(1).bit_length()  # wrong: the result
"""


# basedpyright is pyright with a node of its own, so that none is downloaded when it runs.
CHECKERS = {
    "mypy": ["--strict", "--cache-dir=cache"],
    "basedpyright": ["--pythonpath", sys.executable],
}


@pytest.mark.slow
@pytest.mark.parametrize("text", [SAMPLE.read_text(), WRONG], ids=["right", "wrong"])
@pytest.mark.parametrize("checker", CHECKERS)
def test_types_are_checked(checker, text, tmp_path):
    """As a user's checker sees them."""
    pytest.importorskip(checker, reason=f"{checker} checks the types: install it")
    (tmp_path / "user.py").write_text(text)
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    command = [sys.executable, "-m", checker, *CHECKERS[checker], "user.py"]
    output = run(*command, cwd=tmp_path).stdout
    found = {int(n) for n in re.findall(r"user\.py:(\d+):.*error", output)}
    wrong = {i for i, line in enumerate(text.splitlines(), 1) if "# wrong" in line}
    assert found == wrong and ("0 errors" in output or "no issues" in output or wrong), output
