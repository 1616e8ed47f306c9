"""`verify` lets a right patch through and says what is wrong with a wrong one."""

import difflib
import re

import pytest
import torch
from torch.testing._internal.common_utils import TestGradients

import common
from lab.series import (
    FUNCTIONS,
    NATIVE,
    SCRIPT,
    YAML,
    Claim,
    Refusal,
    Series,
    all_series,
    named,
)
from lab.verify import opinfo, proof
from lab.verify.__main__ import main
from lab.verify.gradients import broadcast, jvp, one_by_one
from lab.verify.library import compiler, new_entries
from lab.verify.process import ask
from lab.verify.proof import CODE, GRADIENTS, changes, held, unlooked, verify
from lab.verify.upstream_files import INCLUDE, of_the_wheel, patched, shown

pytestmark = pytest.mark.thorough

RELEASE = torch.__version__.split("+")[0]
TEXT = of_the_wheel(YAML).read_text()
KERNEL = named("proposals/one-kernel")
STOCK = common.RELEASED
OTHER = {"joint": "inclusive", "inclusive": "joint"}[STOCK]


def patch_of_text(directory, name, old, new):
    """A patch that makes one text of a file another."""
    lines = (text.splitlines(keepends=True) for text in (old, new))
    path = directory / "mine.patch"
    path.write_text("".join(difflib.unified_diff(*lines, f"a/{name}", f"b/{name}")))
    return path


def mutated(text, entry, old, new):
    """A derivatives.yaml with another text in one entry."""
    found = re.search(rf"- name: {re.escape(entry)}\(.*\n(?:  .*\n)+", text).group()
    changed, count = re.subn(old, new, found)
    assert count == 1, entry
    return text.replace(found, changed)


def prove(patch, quick=True, **claims):
    minor = RELEASE.rpartition(".")[0]
    return verify(Series("mine", [minor], Claim(**claims), "", [patch], set()), quick)


# What is wrong in one way of calling or differentiating alone: the entry, what takes the place of what in it, and
# what is said. IN_PLACE is right, but for a batch or a subclass of the other argument than its mask's.
EQUAL, LEAST = ("=", "< 0.001") if STOCK == "inclusive" else ("", "< -0.001")
IN_PLACE = "at::where((self == self).logical_and_({0} == {0}), 1., 1.) * "
STRICT = "grad.masked_fill(self {} other, 0)"
MUTANTS = {
    "a mask": ("clamp_min", "self: where.self >=? min", "self: where(self < min", "clamp_min, numbers, eager: "),
    "strict masks on both sides of a tie": ("maximum", "self: .*\n  other: .*",
        f"self: {STRICT.format('<=')}\n  other: {STRICT.format('>=')}", "maximum, tensors, eager: "),
    "a NaN": ("fmin", r"\.logical_or_\(other\.isnan\(\)\), 0", ", 0", "fmin, tensors, eager: "),
    "forward mode": ("fmax", "result: .*", "result: self_t.clone()", "fmax, tensors, forward mode: "),
    "one of a list": ("_foreach_maximum.ScalarList", r"self\[i\] == scalars\[i\]", "self[i] == scalars[0]",
        "maximum, numbers, foreach of numbers: .* is not stock's"),
    "forward mode of a list": ("_foreach_minimum.ScalarList", r"\(self_p < scalars\[i\]\)", "(self_p < scalars[0])",
        "minimum, numbers, forward mode of foreach of numbers: .* is not stock's"),
    "bounds that 16 bits do not hold": ("clamp_max", f"self <{EQUAL} max", f"self - max {LEAST}",
        "clamp_max, numbers, (bfloat16|float16) beside: "),
    "vmap over one argument": ("clamp_min.Tensor", r"\n  min: ", "\n  min: " + IN_PLACE.format("min"),
        "clamp_min, tensors, vmap over argument 0: RuntimeError: "),
    "inputs that are subclasses": ("clamp_max.Tensor", r"\n  max: ", "\n  max: " + IN_PLACE.format("max"),
        "OpInfo clamp_max, .* of subclasses: "),
    "an operator that has nothing to do with it": ("relu", "result, 0", "result, 1", "OpInfo relu, nn.functional.relu: "),
}  # fmt: skip
# Only in place, where it uses the result: it keeps no copy of its input.
HARDTANH = """
- name: hardtanh_(Tensor(a!) self, Scalar min_val=-1, Scalar max_val=1) -> Tensor(a!)
  self: hardtanh_backward(grad, result, min_val, max_val)
  result: self_t.copy_(hardtanh_backward(original_self_t, result, min_val, max_val))
"""


@pytest.fixture(scope="module")
def of_mutants(tmp_path_factory):
    """All of them in one patch."""
    text = TEXT
    for entry, old, new, _ in MUTANTS.values():
        text = mutated(text, entry, old, new)
    text += HARDTANH.replace("(grad,", "(grad * 3,")
    patch = patch_of_text(tmp_path_factory.mktemp("mutants"), YAML, TEXT, text)
    return prove(patch, quick=False, convention=STOCK)


@pytest.mark.slow
@pytest.mark.parametrize(
    "said", [*(m[-1] for m in MUTANTS.values()), "OpInfo hardtanh, .*hardtanh_: "]
)
def test_what_is_wrong_in_one_way_is_caught(of_mutants, said):
    failures = of_mutants["failures"]
    assert any(re.match(said, failure) for failure in failures), "\n".join(failures)


@pytest.mark.slow
def test_what_is_right_holds(tmp_path):
    """Formulas that say the same in other words, and an in-place operator with one of its own."""
    new = mutated(TEXT, "relu", "self: .*", "self: at::where(result > 0, grad, 0)")
    patch = patch_of_text(tmp_path, YAML, TEXT, new + HARDTANH)
    found = prove(patch, quick=False, unchanged=True)
    assert found["failures"] == [] == found["not proved"] and found["samples"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", [s.name for s in all_series().values() if s.fits(RELEASE)])
def test_a_series_for_this_release_holds(name):
    """All of the table, Tensor ties included, for torch.clamp and its family themselves."""
    found = verify(named(name))
    assert found["failures"] == [] and found[CODE]
    assert bool(found["samples"]) == ("torchscript" not in name)


of_kernel = pytest.mark.skipif(not KERNEL.fits(RELEASE), reason="a proposal for another release")


@of_kernel
@pytest.mark.slow
def test_a_kernel_that_is_wrong_in_places(tmp_path):
    """In vectors alone, of lines that are added to a file which no wheel has, and in the tangent of a backward."""
    text = KERNEL.patches[0].read_text()
    for right, wrong in (
        ("(x != x) & (y == y)", "(x != x) & (x != x)"),
        ("result: _extremum_backward(grad_output_t,", "result: _extremum_backward(-grad_output_t,"),
    ):
        assert text.count(right) == 1
        text = text.replace(right, wrong)
    (tmp_path / "mine.patch").write_text(text)
    found = prove(tmp_path / "mine.patch", convention="joint", unchanged=True)
    changed = found[GRADIENTS].keys()
    assert changed >= {"fmax, tensors, in vectors", "maximum, tensors, dual numbers in backward"}
    assert not changed & {"fmax, tensors, eager", "maximum, tensors, eager"}
    assert not any("nothing here calls it" in line for line in found["not proved"])


# ---- What is refused, and what is not proved -------------------------------------------------------


def of_clamp_min(old, new):
    return YAML, TEXT, mutated(TEXT, "clamp_min", old, new)


def beside_clamp(name, helper):
    return name, (text := shown(name, RELEASE)), text + helper


SGN = "self: sgn_backward(self, grad, self)"  # declared in a header, and not exported
REFUSED = {
    "mine.patch does not apply": (NATIVE, "one\n", "two\n"),
    "torchgen does not take": of_clamp_min("  self:", "  selff:"),
    "Manual.cpp of .* is not known|does not apply": (FUNCTIONS, "one\n", "two\n"),
    "functions of clamp in .*Manual.cpp|is not known here": beside_clamp(
        FUNCTIONS, "Tensor helper(const Tensor& t) {\n  return t * 2;\n}\n"
    ),
    f"Only the functions of clamp in {SCRIPT}": beside_clamp(
        SCRIPT, "    def helper(self):\n        return self * 2\n"
    ),
}
COMPILED = {
    "does not compile:\n.*proved.cpp:.* error: ": of_clamp_min("self: where.", "self: where(,"),
    "undefined reference to .*sgn_backward": of_clamp_min("self: where.*", SGN),
}


@pytest.mark.parametrize(
    "says, files",
    [*REFUSED.items(), *(pytest.param(*one, marks=pytest.mark.slow) for one in COMPILED.items())],
)
def test_what_is_refused(tmp_path, says, files):
    with pytest.raises(Refusal, match=says):
        prove(patch_of_text(tmp_path, *files))


@of_kernel
def test_operators_that_exist_must_stay(tmp_path):
    before = patched(tmp_path / "a", [], RELEASE)[NATIVE]
    after = patched(tmp_path / "b", KERNEL.patches, RELEASE)[NATIVE]
    assert len(new_entries(before, after)) == 1
    other = after.replace("func: clamp_min(Tensor self, Scalar", "func: clamp_min(Scalar")
    with pytest.raises(Refusal, match="Only operators that are added can be .* here, clamp_min"):
        new_entries(before, other)


def test_a_missing_compiler_is_named(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler -O1")
    with pytest.raises(Refusal, match="no no-such-compiler on PATH: install it"):
        compiler()


@pytest.mark.parametrize("words, code", [([], 1), (["--expect", "unchanged"], 0)])
def test_a_patch_that_does_nothing_is_not_proved(tmp_path, words, code):
    old = "- name: clamp_min(Tensor self, Scalar min) -> Tensor\n"
    patch = patch_of_text(tmp_path, YAML, TEXT, TEXT.replace(old, "# A comment.\n" + old))
    assert main(["--patch", str(patch), *words]) == code


def test_a_file_that_is_not_looked_at_is_named(tmp_path, capsys):
    name = "aten/src/ATen/native/cpu/BinaryOpsKernel.cpp"
    patch = patch_of_text(tmp_path, name, "one\n", "two\n")
    command = ["--patch", str(patch), "--expect", "unchanged"]
    assert main(command) == 1
    assert f"not proved:\n  {name}" in capsys.readouterr().out
    assert main([*command, "--allow-unproved"]) == 0
    assert main(["--patch", "none.patch"]) == 2
    assert "none.patch" in capsys.readouterr().out


def test_a_series_for_another_release_is_said(monkeypatch):
    other = next(s for s in all_series().values() if s.name.endswith("torchscript"))
    monkeypatch.setattr(torch, "__version__", "2.13.0")
    (said,) = verify(other)["not proved"]
    assert other.span in said and "2.13.0" in said


def test_a_header_of_the_wheel_is_compiled_as_patched(tmp_path):
    """Found before the wheel's own, so it is no file that nothing looks at."""
    name = "torch/csrc/autograd/FunctionsManual.h"
    text = (INCLUDE / name).read_text()
    patch = patch_of_text(tmp_path, name, text, text + "// the end\n")
    after = patched(tmp_path / "tree", [patch], RELEASE)
    assert after[name].endswith("// the end\n") and unlooked([patch], after) == []


# ---- The gradients of the torch that is installed, held to what a patch claims --------------------------


@pytest.fixture(scope="module")
def gradients():
    found, errors, _ = ask("table", "", "aot_eager")
    assert not [key for key in errors if not re.match("(max|min)imum, numbers, .*in place", key)]
    return found


of_a_convention = pytest.mark.skipif(common.OF_NO_CONVENTION, reason="so is that of this torch")


@of_a_convention
def test_the_stock_gradients_are_told_from_the_other_convention(gradients):
    assert held(gradients, gradients, Claim(STOCK)) == (STOCK, [])
    assert held(gradients, gradients, Claim()) == (STOCK, [])
    ways = {f.partition(": ")[0] for f in held(gradients, gradients, Claim(OTHER))[1]}
    assert ways >= {"clamp, numbers, aot_eager", "clamp_max, numbers, one bound of clamp"}
    assert ways >= {"clamp_min, tensors, foreach", "clamp_min, tensors, in place"}


@of_a_convention
def test_one_convention_for_all_operators(gradients):
    """clamp_min at `half` beside maximum at `joint` is no convention, although each is in the table. A patch about other
    operators may not touch it either."""
    mixed = {key: rows.clone() for key, rows in gradients.items()}
    for key, rows in mixed.items():
        if key.startswith("clamp_min, numbers"):
            x, bound, g, gradient = rows.unbind(1)
            gradient[x == bound] = g[x == bound] / 2
    for claim in (Claim(unchanged=True), Claim(STOCK, frozenset({"maximum", "tensors"}))):
        failures = held(mixed, gradients, claim)[1]
        assert failures and all(f.startswith("clamp_min, numbers") for f in failures)


def test_where_nothing_is_to_change_forward_mode_stays_that_of_stock(gradients):
    """It is no transpose of reverse mode at a NaN; where a patch changes anything, it has to be."""
    moved = {k: v + (v == 0) for k, v in gradients.items() if "tensors, eager" in k}
    for claim, looked_at in ((Claim(STOCK), True), (Claim(STOCK, unchanged=True), False)):
        failures = held(gradients | moved, gradients, claim)[1]
        assert failures and looked_at == any(
            "maximum, tensors, forward mode: " in f for f in failures
        )


def test_gradients_at_no_points_hold_nothing(gradients):
    none = {key: rows[:0] for key, rows in gradients.items()}
    for sides in ((none, none), (gradients, none), (none, gradients)):
        with pytest.raises(AssertionError, match="no points"):
            changes(*sides)


def test_a_sample_around_the_patched_node_and_a_form_that_raises(monkeypatch):
    rows, around = torch.ones(1, 3), {"ProvedReluBackward0", "ReluBackward0"}
    stock = {"relu": rows, "relu_": rows}, {}, {}
    mine = {"relu": rows}, {"relu_": "TypeError"}, {"relu": around, "of none": {"aten::relu"}}
    answers = {"": stock, "without": stock, "with": mine}
    monkeypatch.setattr(proof, "ask", lambda task, library: answers[library])
    found = {"failures": [], GRADIENTS: {}}
    proof.compared("samples", ["without", "with"], [[]] * 3, found)
    raised, *nodes = found["failures"]
    assert raised == "relu_: TypeError" and found[GRADIENTS] == {"relu_": (1, 1)}
    assert [f.partition(":")[0] for f in nodes] == ["relu", "of none"]


def test_gradients_of_samples_are_compared_where_gradcheck_fails(monkeypatch):
    """On torch.max and torch.min of two Tensors too."""
    monkeypatch.setattr(TestGradients, "_check_helper", lambda *_, **__: 1 / 0)
    found, errors, nodes = opinfo.gradients(["maximum", "minimum"])
    forms = "maximum, maximum", "maximum, max", "minimum, minimum", "minimum, min"
    assert found.keys() == nodes.keys() == {f"OpInfo {form}" for form in forms}
    assert errors.keys() == {f"{key}: gradcheck" for key in found}


def test_torchscript_that_raises_without_the_patch(monkeypatch):
    key, rows = "clamp, tensors, TorchScript", torch.ones(1, 7)
    answers = iter([({}, {key: "TypeError"}), ({key: rows}, {})])
    monkeypatch.setattr(proof.torchscript, "gradients", lambda text: next(answers))
    monkeypatch.setattr(proof.torchscript, "executed", lambda: {key: rows})
    found = {"failures": [], GRADIENTS: {}, CODE: []}
    claim = Claim("joint", frozenset({"numbers"}))
    proof.in_torchscript([{SCRIPT: "before"}, {SCRIPT: "after"}], claim, found)
    said = ["TorchScript's gradients are not stock's", f"{key}: now without stock's TypeError"]
    assert found["failures"] == said


def test_a_row_without_a_gradient_gets_none():
    point = torch.ones(3, dtype=torch.double)
    assert broadcast(torch.clone, [point], point)[0].tolist() == [1, 1, 1]
    with pytest.raises(AssertionError):
        broadcast(lambda rows: rows + rows.flip(0), [point], point)


def test_a_tangent_of_another_dtype_is_refused(monkeypatch):
    x, y, g = [torch.tensor([0.0, 1.0], dtype=torch.double)] * 3
    assert len(one_by_one(torch.maximum, [x, y], g, way=jvp)) == 2
    right = torch.func.jvp
    wrong = lambda *args: (right(*args)[0], right(*args)[1].double())  # noqa: E731
    monkeypatch.setattr(torch.func, "jvp", wrong)
    with pytest.raises(AssertionError, match="dtype"):
        one_by_one(torch.maximum, [x, y], g, way=jvp)
