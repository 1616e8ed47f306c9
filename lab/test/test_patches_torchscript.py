"""The functions that a patch writes for TorchScript, compiled by TorchScript and held to the table."""

import re

import pytest
import torch

from lab.series import SCRIPT, Claim, Refusal, Series, files_of, named
from lab.verify import torchscript
from lab.verify.__main__ import main
from lab.verify.proof import CODE, GRADIENTS, changes, held, verify
from lab.verify.upstream_files import JOINT, SCRIPTED, hunks, shown

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
    """All of `verify` runs: no C++ changes, so none is compiled."""
    result = prove(PATCH)
    assert result["failures"] == []
    assert result[CODE] == [SCRIPT]
    assert {key.partition(", TorchScript")[0] for key in result[GRADIENTS]} == {
        *("clamp, numbers", "clamp_min, numbers", "clamp_max, numbers"),
        *("clamp, tensors", "clamp_min, tensors", "clamp_max, tensors"),
        *("maximum, tensors", "minimum, tensors"),
    }


def test_what_the_patch_takes_away_is_what_the_installed_torch_has():
    """On every release, though no wheel has the file."""
    before, _ = torchscript.gradients(shown(SCRIPT, torch.__version__))
    stock = torchscript.executed()
    assert stock.keys() <= before.keys() and changes(stock, before) == {}
    assert len(held(stock, stock, Claim("joint"))[1]) == len(stock)


def test_nothing_but_the_gradients_changes():
    def forward(side):
        functions = SCRIPTED.finditer(hunks(PATCH, SCRIPT, side))
        backward = re.compile(r"^( +)def backward\(.*?(?=^\1\S)", re.M | re.S)
        return [backward.sub("", found[0]) for found in functions]

    assert forward("+") == forward("-") != []


BROKEN = {
    "a tie that is lost": ("other, grad_output / 2,", "other, grad_output * 0,"),
    "a mask of the other convention": ("self > float(min)", "self >= float(min)"),
    "a sum over rows that is left out": ("grad_min._grad_sum_to_size(min.size())", "grad_min"),
    "a row in place of the sum over rows": (
        "grad_min._grad_sum_to_size(min.size())",
        "(grad_min if grad_min.size() == min.size() else grad_min[0])",
    ),
    "bounds that get nothing": ("grad_min = torch.where(below", "grad_min = torch.where(above"),
}


@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN)
def test_a_broken_formula_is_caught(tmp_path, change):
    failures = prove(broken(tmp_path, *change))["failures"]
    of_rows = "min.size()" in change[0]
    mode = "with a broadcast argument: AssertionError" if of_rows else ": arguments, g, "
    assert any(f"TorchScript{' ' * of_rows}{mode}" in f for f in failures)
    if change == BROKEN["a tie that is lost"]:
        assert {f.split(",")[0] for f in failures} == {"maximum", "minimum"}


def test_a_syntax_error_is_named(tmp_path):
    with pytest.raises(Refusal, match="TorchScript does not take the functions"):
        prove(broken(tmp_path, "torch.where(", "torch.where(("))


def test_the_command_says_what_changed_and_what_is_wrong(tmp_path, capsys):
    """Without --convention all operators must have one; exit code 1 where they have none."""
    ties = "other, grad_output{}, grad_output"
    patch = broken(tmp_path, ties.format(" / 2"), ties.format(""))
    assert main(["--patch", str(patch)]) == 1
    out = capsys.readouterr().out
    for tensors in ("maximum", "minimum"):
        assert f"\n  {tensors}, tensors: " in out and f"\n{tensors}, tensors, TorchScript: " in out
    assert "\nclamp, tensors, TorchScript: " not in out
