"""The functions that a patch writes for TorchScript, compiled by
TorchScript and held to the table."""

import re
from itertools import product

import pytest

from lab.series import SCRIPT, Claim, Refusal, Series, files_of, named
from lab.verify.__main__ import main
from lab.verify.proof import CODE, GRADIENTS, verify
from lab.verify.upstream_files import JOINT, SCRIPTED, hunks

pytestmark = pytest.mark.thorough

(PATCH,) = (p for p in named(JOINT).patches if SCRIPT in files_of(p))


def prove(patch):
    return verify(Series("mine", named(JOINT).releases, Claim("joint"), "", [patch], set()))


def broken(directory, old, new):
    """The patch with another text in the lines that it adds."""
    lines = PATCH.read_text().splitlines()
    changed = [line.replace(old, new) if line.startswith("+") else line for line in lines]
    assert changed != lines
    path = directory / "mine.patch"
    path.write_text("\n".join(changed) + "\n")
    return path


def test_the_patch_gives_the_gradients_of_eager_mode():
    """All of `verify` runs: no C++ changes, so none is compiled. On every release the executor has
    the gradients of what the patch takes away, though no wheel has the file."""
    result = prove(PATCH)
    assert result["failures"] == []
    assert result[CODE] == [SCRIPT]
    clamps = product(("clamp", "clamp_min", "clamp_max"), ("numbers", "tensors"))
    changed = {tuple(key.split(", ")[:2]) for key in result[GRADIENTS]}
    assert changed == {*clamps, ("maximum", "tensors"), ("minimum", "tensors")}


def test_nothing_but_the_gradients_changes():
    def forward(side):
        functions = SCRIPTED.finditer(hunks(PATCH, SCRIPT, side))
        backward = re.compile(r"^( +)def backward\(.*?(?=^\1\S)", re.M | re.S)
        return [backward.sub("", found[0]) for found in functions]

    assert forward("+") == forward("-") != []


SUM = "grad_min._grad_sum_to_size(min.size())"
BROKEN = {
    "a tie that is lost": ("other, grad_output / 2,", "other, grad_output * 0,"),
    "a mask of the other convention": ("self > float(min)", "self >= float(min)"),
    "bounds that get nothing": ("grad_min = torch.where(below", "grad_min = torch.where(above"),
    "a sum over rows that is left out": (SUM, "grad_min"),
    "a row in place of the sum over rows": (
        SUM,
        "(grad_min if grad_min.size() == min.size() else grad_min[0])",
    ),
}


@pytest.mark.parametrize("old, new", BROKEN.values(), ids=BROKEN)
def test_a_broken_formula_is_caught(tmp_path, old, new):
    where = "TorchScript with a broadcast argument: " if old == SUM else "TorchScript: "
    assert any(where in failure for failure in prove(broken(tmp_path, old, new))["failures"])


def test_a_syntax_error_is_named(tmp_path):
    with pytest.raises(Refusal, match="TorchScript does not take the functions"):
        prove(broken(tmp_path, "torch.where(", "torch.where(("))


def test_the_command_says_what_changed_and_what_is_wrong(tmp_path, capsys):
    """Without --convention all operators must have one; exit code 1 where they have none."""
    patch = broken(
        tmp_path, "other, grad_output / 2, grad_output", "other, grad_output, grad_output"
    )
    assert main(["--patch", str(patch)]) == 1
    out = capsys.readouterr().out
    for tensors in ("maximum, tensors", "minimum, tensors"):
        assert f"\n  {tensors}: " in out and f"\n{tensors}, TorchScript: " in out
    assert "\nclamp, tensors, TorchScript: " not in out
