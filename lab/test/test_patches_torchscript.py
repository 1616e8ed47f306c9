"""The functions that a patch writes for TorchScript, compiled by TorchScript and held to the table."""

import json
import re

import pytest

from lab.series import SCRIPT, Claim, Refusal, files_of, named
from lab.verify import torchscript
from lab.verify.__main__ import main
from lab.verify.held import against_table, changes
from lab.verify.run import CODE, GRADIENTS, Question, verify
from lab.verify.text import JOINT, hunks, script_functions, script_text

pytestmark = pytest.mark.thorough

(PATCH,) = (p for p in named(JOINT).patches if SCRIPT in files_of(p))


def prove(patch):
    return verify(Question([patch], Claim("joint"), quick=True), lambda line: None)


def broken(directory, old, new):
    """The patch with another text in the lines that it adds."""
    lines = PATCH.read_text().splitlines()
    changed = [line.replace(old, new) if line.startswith("+") else line for line in lines]
    assert changed != lines
    path = directory / "mine.patch"
    path.write_text("\n".join(changed) + "\n")
    return path


def test_the_patch_gives_the_gradients_of_eager_mode():
    """This is `verify` from its beginning to its end: no C++ changes, so none is compiled."""
    result = prove(PATCH)
    assert result["failures"] == []
    functions = ("clamp_1", "clamp_2", "max", "min")
    assert result[CODE] == [f"{name} of TorchScript" for name in functions]
    changed = {line.split(", TorchScript")[0] for line in result[GRADIENTS]}
    assert changed == {", ".join(form) for form in torchscript.FORMS}


def test_what_the_patch_takes_away_is_what_the_installed_torch_has():
    """On every release, though no wheel has the file."""
    before = torchscript.gradients(script_functions(script_text(None)))
    stock = torchscript.executed()
    assert stock.keys() == before.keys() and changes(stock, before) == []
    assert len(against_table(stock, "joint", set())) == len(stock)


def test_nothing_but_the_gradients_changes():
    def forward(side):
        functions = script_functions(hunks(PATCH, SCRIPT, side))
        backward = re.compile(r"^( +)def backward\(.*?(?=^\1\S)", re.M | re.S)
        return [(name, backward.sub("", text)) for name, text in functions]

    assert forward("+") == forward("-") != []


BROKEN = {
    "a tie that is lost": ("other, grad_output / 2,", "other, grad_output * 0,"),
    "a mask of the other convention": ("self > float(min)", "self >= float(min)"),
    "a sum over rows that is left out": ("grad_min._grad_sum_to_size(min.size())", "grad_min"),
    "bounds that get nothing": ("grad_min = torch.where(below", "grad_min = torch.where(above"),
}


@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN)
def test_a_broken_formula_is_caught(tmp_path, change):
    failures = prove(broken(tmp_path, *change))["failures"]
    rows = change == BROKEN["a sum over rows that is left out"]
    said = ", TorchScript: a broadcast argument" if rows else ", TorchScript: at ["
    assert failures and all(said in f for f in failures)
    if change == BROKEN["a tie that is lost"]:
        assert {f.split(",")[0] for f in failures} == {"maximum", "minimum"}
        assert all(f.endswith("the gradient is lost") for f in failures)


def test_a_syntax_error_is_named(tmp_path):
    with pytest.raises(Refusal, match="TorchScript does not take the functions"):
        prove(broken(tmp_path, "torch.where(", "torch.where(("))


def test_the_command_says_what_changed_and_what_is_wrong(tmp_path, capsys):
    """Without --convention all operators must have one; exit code 1 where they have none."""
    ties = "other, grad_output{}, grad_output"
    command = ["--patch", str(broken(tmp_path, ties.format(" / 2"), ties.format("")))]
    assert main([*command, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["patches"] == ["mine.patch"] and told[CODE] and told[GRADIENTS]
    assert {f.split(",")[0] for f in told["failures"]} == {"maximum", "minimum"}
    assert main(command) == 1
    out, err = capsys.readouterr()
    assert "max of TorchScript" in out and "maximum, tensors, TorchScript: at [" in out
    assert re.search(r"^\d+:\d\d  2/7 ", err, re.MULTILINE)
