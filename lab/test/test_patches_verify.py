"""`verify` lets a right patch through and says what is wrong with a wrong one."""

import json
import math
import os
import re
import sys
from copy import deepcopy
from pathlib import Path

import pytest
import torch
import torchgen

import common
from lab.series import FUNCTIONS, SCRIPT, YAML, Claim, Refusal, all_series, git, named
from lab.verify import run
from lab.verify.__main__ import TAKES, main
from lab.verify.checks import of_several_dtypes
from lab.verify.compile import compiler
from lab.verify.held import against_table, changes, group, held
from lab.verify.native import new_entries
from lab.verify.run import CODE, GRADIENTS, SAVED, Question, ask, of_series, unlooked, verify
from lab.verify.samples import digest
from lab.verify.text import INCLUDE, manual_text, patched, script_text
from lab.verify.told import told

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).resolve().parents[2]
RELEASE = torch.__version__.split("+")[0]
TEXT = (Path(torchgen.__file__).parent / "packaged/autograd/derivatives.yaml").read_text()
NEW = common.RELEASED != "inclusive"
KERNEL = named("proposals/one-kernel")
STOCK, OTHER = ("joint", "inclusive") if NEW else ("inclusive", "joint")


def patch_of_text(directory, name, old, new):
    """A patch that makes one text of a file another."""
    path = directory / name
    path.parent.mkdir(parents=True)
    path.write_text(old)
    git(directory, "init", "--quiet")
    git(directory, "add", ".")
    path.write_text(new)
    made = directory / "mine.patch"
    made.write_text(git(directory, "diff").stdout)
    return made


def patch_of(directory, old, new):
    """A patch that replaces one piece of the installed derivatives.yaml."""
    assert TEXT.count(old) == 1
    return patch_of_text(directory, YAML, TEXT, TEXT.replace(old, new))


def prove(patch, convention=None, scope=(), quick=True, **claims):
    claim = Claim(convention, frozenset(scope), **claims)
    return verify(Question([patch], claim, quick=quick), lambda line: None)


def test_a_hunk_that_does_not_apply(tmp_path):
    patch = patch_of(tmp_path, "- name: clamp_min(Tensor self", "- name: clamp_least(Tensor self")
    patch.write_text(patch.read_text().replace(" - name: clamp", " - name: clump"))
    patch.write_text(patch.read_text().replace("-- name: clamp_min", "-- name: clump_min"))
    with pytest.raises(Refusal, match="mine.patch does not apply"):
        prove(patch)


def test_a_formula_that_torchgen_does_not_take(tmp_path):
    old = "- name: clamp_min(Tensor self, Scalar min) -> Tensor\n  self:"
    with pytest.raises(Refusal, match="torchgen does not take"):
        prove(patch_of(tmp_path, old, old.replace("self:", "selff:")))


def test_what_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler -O1")
    with pytest.raises(Refusal, match="no C.. compiler no-such-compiler: install one"):
        compiler()
    monkeypatch.setattr(run, "find_spec", lambda name: name != "yaml" or None)
    with pytest.raises(Refusal, match="needs pyyaml: pip install pyyaml"):
        prove(tmp_path / "none.patch")


def test_a_missing_torch_is_named_on_the_command_line():
    env = os.environ | {"PYTHONPATH": ""}
    # -S: no package is found.
    done = common.run(sys.executable, "-S", "-m", "lab.verify", cwd=ROOT, env=env)
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.startswith("refused: ") and "pip install torch" in done.stdout


@pytest.mark.parametrize("words, message", [
    (["--source", "nowhere"], "There is no nowhere."),
    (["--patch", "none.patch"], "There is no none.patch"),
    (["--series", "v2.13.0/joint", "--convention", "nope"], "There is no convention nope"),
])  # fmt: skip
def test_what_it_refuses_is_a_message(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert capsys.readouterr().out.startswith(f"refused: {message}")


def test_only_functions_that_can_be_proved(tmp_path):
    """Three functions of a checkout's FunctionsManual.cpp are compiled, so no other may change."""
    text = manual_text(RELEASE, None) + "Tensor other() {\n  return 1;\n}\n"
    patch = patch_of_text(tmp_path, FUNCTIONS, text, text.replace("return 1;", "return 2;"))
    (tmp_path / SCRIPT).parent.mkdir(parents=True)
    for name, upstream in {FUNCTIONS: text, SCRIPT: script_text(None)}.items():
        (tmp_path / name).write_text(upstream)
    with pytest.raises(Refusal, match="Only clamp_backward, .*FunctionsManual.cpp can be proved"):
        verify(Question([patch], source=tmp_path, quick=True), lambda line: None)


@pytest.fixture(scope="module")
def gradients():
    """Those of the torch that is installed."""
    return ask("gradients")["gradients"]


def test_the_stock_gradients_are_told_from_the_other_convention(gradients):
    """Without compiling: the checks themselves."""
    found = deepcopy(gradients)
    assert against_table(found, STOCK, set()) == []
    ways = {f.partition(": ")[0] for f in against_table(found, OTHER, set())}
    assert ways >= {"clamp, numbers, aot_eager", "clamp_max, numbers, one bound of clamp"}
    assert ways >= {"clamp_min, tensors, foreach", "clamp_min, tensors, in place"}
    # The tie that strict masks on both sides lose.
    for row in found["maximum, tensors, eager"]:
        if row[0] == row[1]:
            row[3:] = [0.0, 0.0]
    assert any("the gradient is lost" in f for f in against_table(found, STOCK, set()))


def test_one_convention_for_all_operators(gradients):
    """clamp at `half` beside maximum at `joint` is no convention, although each is in the table."""
    for claim in (Claim(STOCK), Claim()):
        assert held(gradients, gradients, claim, set()) == []
    mixed = dict(gradients)
    for key in (k for k in gradients if k.startswith("clamp_min, numbers")):
        mixed[key] = [[x, b, g, g / 2 if x == b else d] for x, b, g, d in gradients[key]]
    failures = held(mixed, gradients, Claim(), set())
    assert failures and all("clamp_min, numbers" in f for f in failures)
    # A patch about other operators may not touch it either.
    strangers = held(mixed, gradients, Claim(STOCK, frozenset({"maximum", "tensors"})), set())
    assert strangers and all(f.startswith("outside of the scope, clamp_min") for f in strangers)


def test_where_nothing_is_to_change_forward_mode_stays_that_of_stock(gradients):
    """It is no transpose of reverse mode at a NaN, and a patch that computes the same elsewhere may not mend it."""
    touched = set(map(group, gradients))
    mended = held(gradients, gradients, Claim(STOCK), touched)
    forward = re.compile(", (forward|forward mode of .*|jvp|jvp of several dtypes): ")
    assert mended and all(map(forward.search, mended))
    assert held(gradients, gradients, Claim(STOCK, unchanged=True), touched) == []


def test_gradients_at_no_points_hold_nothing(gradients):
    none = {**gradients, "maximum, tensors, eager": []}
    with pytest.raises(ValueError, match="no points"):
        against_table(none, "joint", set())
    for sides in ((gradients, none), (none, gradients)):
        with pytest.raises(ValueError, match="no points|zip"):
            changes(*sides)


def test_what_is_found_is_one_short_line_each(gradients):
    """Whatever the number of modes, and however long a message of torch is."""
    failures = against_table(deepcopy(gradients), OTHER, set())
    assert len(failures) > 100 and max(map(len, failures)) < 150
    failures += ["OpInfo clamp: " + "word " * 100, "the control is not stock: a, b, c: 1 of 2"]
    points = [f"clamp, numbers, {mode}: {n} of 10" for n, mode in enumerate(("eager", "vmap"), 3)]
    result = {"patches": ["a-name-of-a-patch.patch"] * 9, CODE: ["ClampBackward0"] * 50}
    result |= {GRADIENTS: points, SAVED: [], "tests and documentation": []}
    result |= {"not proved": ["a/" * 100], "failures": failures, "convention": STOCK}
    lines = told(result).splitlines()
    assert max(map(len, lines)) <= 98
    assert "  clamp, numbers: 7 of 20 points in 2 ways to differentiate or call" in lines
    of_clamp_min = [line for line in lines if line.startswith("clamp_min, numbers")]
    assert len(of_clamp_min) == 1 and re.search(r"\(and in \d\d more ways\)$", of_clamp_min[0])
    assert lines[-1] == "the control is not stock: a, b, c: 1 of 2"
    assert told({**result, "failures": []}).endswith(f"\nAll of it holds: {STOCK}.")


def test_how_long_it_takes_is_what_it_took():
    measured = json.loads((ROOT / "docs/verified.json").read_text())
    minutes = [run["seconds"] / 60 for run in measured if "torchscript" not in run["series"]]
    assert f"{math.floor(min(minutes))} to {math.ceil(max(minutes))} minutes" == TAKES


def test_samples_of_every_layout_are_compared():
    """OpInfo has some without dimensions, without elements and transposed."""
    two = torch.arange(6.0).double().view(2, 3)
    samples = [two, two.T, two[0, 1], two[:0], None]
    assert digest(samples) == digest([s if s is None else s.clone() for s in samples])
    for i, sample in enumerate(samples):
        other = [*samples[:i], two + 1 if sample is None else None, *samples[i + 1 :]]
        assert digest(other) != digest(samples)


def test_a_patch_that_does_nothing_is_not_proved(tmp_path):
    old = "- name: clamp_min(Tensor self, Scalar min) -> Tensor\n"
    result = prove(patch_of(tmp_path, old, "# A comment.\n" + old))
    assert result["failures"] == ["no gradient changed (--expect unchanged, if none should)"]
    assert result[CODE] == []


def test_a_file_that_is_not_looked_at_is_named(tmp_path, capsys):
    name = "aten/src/ATen/native/cpu/BinaryOpsKernel.cpp"
    patch = patch_of_text(tmp_path, name, "one\n", "two\n")
    command = ["--patch", str(patch), "--expect", "unchanged"]
    assert main(command) == 1
    assert f"not proved:\n  {name}" in capsys.readouterr().out
    assert main([*command, "--allow-unproved"]) == 0


def test_a_header_of_the_wheel_is_compiled_as_patched(tmp_path):
    """Found before the wheel's own, so it is no file that nothing looks at."""
    name = "torch/csrc/autograd/FunctionsManual.h"
    text = (INCLUDE / name).read_text()
    patch = patch_of_text(tmp_path / "a", name, text, text + "// the end\n")
    after = patched(tmp_path / "b", [patch], RELEASE, None)
    assert after.headers == {name} and unlooked([patch], after) == []
    assert (tmp_path / "b" / name).read_text().endswith("// the end\n")
    assert patched(tmp_path / "c", [], RELEASE, None).headers == set()


@pytest.mark.slow
@pytest.mark.parametrize("name", [s.name for s in all_series().values() if s.fits(RELEASE)])
def test_a_series_for_this_release_holds(name):
    """All of the table, Tensor ties included, for torch.clamp and its family themselves."""
    result = verify(of_series(name, RELEASE), lambda line: None)
    assert result["failures"] == [] and result[CODE]
    assert bool(result["opinfo samples"]) == ("torchscript" not in name)
    families = {line.split(",")[0] for line in result[GRADIENTS]}
    if name == "v2.13.0/joint":
        assert families >= {"clamp", "clamp_min", "clamp_max", "maximum", "minimum", "fmax", "fmin"}
    if name == "v2.13.0/strict":
        assert not families & {"maximum", "minimum", "fmax", "fmin"}
        assert not any(line.startswith("clamp, tensors") for line in result[GRADIENTS])


MINIMUM = "  self: where(self {} min, grad, at::scalar_tensor(0., grad.options()))\n  result: auto"
STRICT, LOOSE = MINIMUM.format(">"), MINIMUM.format(">=")


@pytest.mark.slow
def test_a_wrong_mask_is_caught(tmp_path):
    patch = patch_of(tmp_path, STRICT if NEW else LOOSE, MINIMUM.format("<"))
    result = prove(patch)
    assert {f.split(",")[0] for f in result["failures"]} == {"clamp_min"}
    assert any(f.startswith("clamp_min, numbers, eager: at [") for f in result["failures"])
    assert set(result[CODE]) >= {"ClampMinBackward0", "clamp_min"}
    assert all(line.startswith("clamp_min, numbers") for line in result[GRADIENTS])


@pytest.mark.slow
def test_strict_masks_on_both_sides_of_a_tie_are_caught(tmp_path):
    """(0, 0) at maximum(x, x), which is no subgradient."""
    entry = re.search(r"- name: maximum\(.*\n(?:  .*\n)+", TEXT).group()
    strict = re.sub("  self: .*", "  self: grad.masked_fill(self <= other, 0)", entry)
    strict = re.sub("  other: .*", "  other: grad.masked_fill(self >= other, 0)", strict)
    failures = prove(patch_of(tmp_path, entry, strict))["failures"]
    lost = [f for f in failures if f.startswith("maximum, tensors, eager")]
    assert lost and lost[0].endswith("no subgradient, the gradient is lost")


SGN = "  self: sgn_backward(self, grad, self)\n  result: auto"  # declared in a header, and not exported


@pytest.mark.slow
@pytest.mark.parametrize("new, says", [
    ((STRICT if NEW else LOOSE).replace("grad, at", "grad,, at"), "does not compile:\nproved.cpp:.* error: "),
    (SGN, "undefined reference to .*sgn_backward"),
])  # fmt: skip
def test_a_formula_that_does_not_build_is_refused(tmp_path, new, says):
    with pytest.raises(Refusal, match=says):
        prove(patch_of(tmp_path, STRICT if NEW else LOOSE, new))


# What our own proof let pass once: each wrong in one way of calling or differentiating alone. The entry, what takes
# the place of what in it, and what is said.
OLD = STOCK == "inclusive"
EQUAL, LEAST = ("=", "< 0.001") if OLD else ("", "< -0.001")
FORMS = {
    "one of a list": (
        "_foreach_maximum.ScalarList",
        "self: at::where(self[i] == scalars[i]",
        "self: at::where(self[i] == scalars[0]",
        "not as on stock, maximum, numbers, foreach of numbers: ",
    ),
    "forward mode of a list": (
        "_foreach_minimum.ScalarList",
        "(self_p < scalars[i])",
        "(self_p < scalars[0])",
        "not as on stock, minimum, numbers, forward mode of foreach of numbers: ",
    ),
    "bounds that 16 bits do not hold": (
        "clamp_max",
        f"self <{EQUAL} max",
        f"self - max {LEAST}",
        "clamp_max, numbers, (bfloat16|float16) beside: at ",
    ),
    # In place on a mask of one argument alone: right, but for a batch or a subclass of the other.
    "vmap over one argument": (
        "clamp_min.Tensor",
        "min: ",
        "min: at::where((self == self).logical_and_(min == min), 1., 1.) * ",
        "clamp_min, tensors, vmap over one: RuntimeError: ",
    ),
    "inputs that are subclasses": (
        "clamp_max.Tensor",
        "max: ",
        "max: at::where((self == self).logical_and_(max == max), 1., 1.) * ",
        "OpInfo clamp_max, of subclasses: ",
    ),
}
# In place alone, on its result: it keeps no copy of its input.
HARDTANH = """
- name: hardtanh_(Tensor(a!) self, Scalar min_val=-1, Scalar max_val=1) -> Tensor(a!)
  self: hardtanh_backward(grad, result, min_val, max_val)
  result: self_t.copy_(hardtanh_backward(original_self_t, result, min_val, max_val))
"""


@pytest.fixture(scope="module")
def of_mutants(tmp_path_factory):
    """All of them in one patch."""
    text = TEXT
    for entry, old, new, _ in FORMS.values():
        found = re.search(r"- name: " + re.escape(entry) + r"\(.*\n(?:  .*\n)+", text).group()
        assert found.count(old) == 1, entry
        text = text.replace(found, found.replace(old, new))
    text += HARDTANH.replace("(grad,", "(grad * 3,")
    patch = patch_of_text(tmp_path_factory.mktemp("mutants"), YAML, TEXT, text)
    return prove(patch, convention=STOCK, quick=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
def test_what_is_wrong_in_one_form_is_caught(of_mutants, name):
    said = re.compile(FORMS[name][-1])
    assert any(map(said.match, of_mutants["failures"])), of_mutants["failures"]


@pytest.mark.slow
def test_an_in_place_operator_with_a_formula_of_its_own(of_mutants, tmp_path):
    """The right one and one that is three times too large get different verdicts."""
    wrong = [f for f in of_mutants["failures"] if f.startswith("OpInfo nn.functional.hardtanh_")]
    assert wrong, of_mutants["failures"]
    patch = patch_of_text(tmp_path, YAML, TEXT, TEXT + HARDTANH)
    found = prove(patch, quick=False, unchanged=True)
    assert found["failures"] == [] == found["not proved"] and found["opinfo samples"] > 0


def test_a_series_for_another_release_is_said():
    other = next(s for s in all_series().values() if not s.fits(RELEASE))
    said = f"{other.name} is for {other.span}, and this is {RELEASE}"
    assert of_series(other.name, RELEASE).note == said
    mine = next(s for s in all_series().values() if s.fits(RELEASE))
    assert of_series(mine.name, RELEASE).note == ""


RELU = "- name: relu(Tensor self) -> Tensor\n  self: threshold_backward(grad, result, 0)"


@pytest.mark.slow
def test_any_operator_is_proved_on_the_samples_of_opinfo(tmp_path):
    wrong = patch_of(tmp_path / "wrong", RELU, RELU.replace("result, 0", "result, 1"))
    result = prove(wrong, quick=False)
    assert {"ReluBackward0"} <= set(result[CODE])
    assert any(line.startswith("nn.functional.relu, OpInfo: ") for line in result[GRADIENTS])
    assert any(f.startswith("OpInfo nn.functional.relu") for f in result["failures"])
    same = "  self: at::where(result > 0, grad, 0)"
    right = patch_of(tmp_path / "right", RELU, RELU.splitlines()[0] + "\n" + same)
    found = prove(right, quick=False, unchanged=True)
    assert found["failures"] == [] == found["not proved"] and found["opinfo samples"] > 0


of_kernel = pytest.mark.skipif(not KERNEL.fits(RELEASE), reason="a proposal for another release")


@of_kernel
def test_operators_that_exist_must_stay(tmp_path):
    before = patched(tmp_path / "a", [], RELEASE, None).native
    after = patched(tmp_path / "b", KERNEL.patches, RELEASE, None).native
    assert list(new_entries(before, after)) and after != before
    other = after.replace("func: clamp_min(Tensor self, Scalar", "func: clamp_min(Scalar")
    with pytest.raises(Refusal, match="Only operators that are added can be .* here, clamp_min"):
        new_entries(before, other)


@of_kernel
@pytest.mark.slow
def test_a_kernel_that_is_wrong_in_places(tmp_path):
    """In vectors alone, of lines that are added to a file which no wheel has, and in the tangent of a backward."""
    (path,) = KERNEL.patches
    text = path.read_text()
    for right, wrong in (
        ("(x != x) & (y == y)", "(x != x) & (x != x)"),
        ("result: _extremum_backward(grad_output_t,", "result: _extremum_backward(-grad_output_t,"),
    ):
        assert text.count(right) == 1
        text = text.replace(right, wrong)
    (tmp_path / "mine.patch").write_text(text)
    found = prove(tmp_path / "mine.patch", convention="joint", unchanged=True)
    changed = {line.partition(":")[0] for line in found[GRADIENTS]}
    assert changed >= {"fmax, tensors, in vectors", "maximum, tensors, dual numbers in backward"}
    assert not changed & {"fmax, tensors, eager", "maximum, tensors, eager"}
    assert not any("nothing here calls it" in line for line in found["not proved"])


def test_a_tangent_of_another_dtype_is_refused(monkeypatch):
    points = [torch.tensor([0.0, 1.0], dtype=torch.double)] * 3
    assert len(of_several_dtypes(torch.maximum, points[:2], points[2])) == 2
    jvp = torch.func.jvp
    wrong = lambda *args: (jvp(*args)[0], jvp(*args)[1].double())  # noqa: E731
    monkeypatch.setattr(torch.func, "jvp", wrong)
    with pytest.raises(AssertionError, match="a tangent"):
        of_several_dtypes(torch.maximum, points[:2], points[2])
