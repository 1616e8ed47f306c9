"""`verify` lets a right patch through and says what is wrong with a wrong one."""

import difflib
import re
from functools import partial

import pytest
import torch
from torch.testing._internal.common_utils import TestGradients
from torchgen import gen
from torchgen.packaged.autograd.gen_python_functions import should_generate_py_binding

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
from lab.verify.__main__ import main, report
from lab.verify.gradients import MIXED, ROUNDED, broadcast, jvp, one_by_one
from lab.verify.library import compiler, new_entries, new_operators, not_built
from lab.verify.process import ask
from lab.verify.proof import CODE, GRADIENTS, SAVED, changes, held, saves, unlooked, verify
from lab.verify.upstream_files import (
    INCLUDE,
    MANUAL,
    TAGS,
    additions,
    of_the_wheel,
    patched,
    removes,
    shown,
)
from oracle import TABLE

pytestmark = pytest.mark.thorough

RELEASE = torch.__version__.split("+")[0]
TEXT = of_the_wheel(YAML).read_text()
KERNEL = named("proposals/tensor-bounds")
STOCK = common.RELEASED
OTHER = {"joint": "inclusive", "inclusive": "joint"}[STOCK]


def patch_of_text(directory, name, old, new):
    """A patch that makes one text of a file another."""
    lines = (text.splitlines(keepends=True) for text in (old, new))
    directory.mkdir(exist_ok=True)
    path = directory / "mine.patch"
    path.write_text("".join(difflib.unified_diff(*lines, f"a/{name}", f"b/{name}")))
    return path


def mutated(text, entry, old, new):
    """A derivatives.yaml with another text in one entry; `{}` in what is new is what was there."""
    new = new.replace("{}", r"\g<1>") if isinstance(new, str) else new
    found = re.search(rf"- name: {re.escape(entry)}\(.*\n(?:  .*\n)+", text).group()
    changed, count = re.subn(old, new, found)
    assert count == 1, entry
    return text.replace(found, changed)


def prove(*patches, quick=True, **claims):
    minor = RELEASE.rpartition(".")[0]
    return verify(Series("mine", [minor], Claim(**claims), "", [*patches], set()), quick)


# What is wrong in one way of calling or differentiating alone: the entry, what takes the place
# of what in it, and what is said. IN_PLACE is right, but for a batch or a subclass of the
# other argument than its mask's.
EQUAL, LEAST = ("=", "< 0.001") if STOCK == "inclusive" else ("", "< -0.001")
IN_PLACE = "at::where((self == self).logical_and_({0} == {0}), 1., 1.) * "
STRICT = "grad.masked_fill(self {} other, 0)"
MUTANTS = {
    "a number that is an int": ("clamp_min", "self: (.*)", 'self: "min.isIntegral(true) ? grad : {}"',
        "clamp_min, numbers, eager with int: at self = -1, min = 0"),
    "strict masks on both sides of a tie": ("maximum", "self: .*\n  other: .*",
        f"self: {STRICT.format('<=')}\n  other: {STRICT.format('>=')}", "maximum, tensors, eager: "),
    "a NaN": ("fmin", "other: (.*)", "other: at::where(other.isnan(), grad * 3, {})",
        "fmin, tensors, eager: .* the gradient of other "),
    "forward mode": ("fmax", "result: .*", "result: self_t.clone()", "fmax, tensors, forward mode: "),
    "one of a list": ("_foreach_maximum.ScalarList", r"self\[i\] == scalars\[i\]", "self[i] == scalars[0]",
        "maximum, numbers, foreach of numbers: .* as stock has it"),
    "forward mode of a list": ("_foreach_minimum.ScalarList", r"\(self_p < scalars\[i\]\)", "(self_p < scalars[0])",
        "minimum, numbers, forward mode of foreach of numbers: .* as stock has it"),
    "bounds that 16 bits do not hold": ("clamp_max", f"self <{EQUAL} max", f"self - max {LEAST}",
        "clamp_max, numbers, (bfloat16|float16) beside: "),
    "what is differentiated": ("clamp.Tensor", "self: (.*)",
        'self: "!min.defined() || min.requires_grad() ? {} : grad * 2"',
        r"clamp, tensors, eager \(self differentiable\): .* the gradient of self "),
    "what is asked for": ("clamp.Tensor", r"clamp_backward_min_max\(grad, (.*)",
        r'"clamp_backward_min_max(grad_input_mask[0] && grad_input_mask[1] ? grad : grad * 2, {}"',
        r"clamp, tensors, eager \(min asked for\): .* the gradient of min "),
    "the dtype of a comparison": ("clamp_max.Tensor", "self: .*",
        lambda m: re.sub(r"\bmax\b", "max.to(self.scalar_type())", m[0]),
        "clamp_max, tensors, float32 beside float64: .* the gradient of self "),
    "what is saved": ("minimum", "self: (.*)", "self: at::where(result == result, {}, grad)",
        "minimum, tensors, eager: it saves now the result: float64 "),
    "an operator after it": (*3 * [None], "minimum, tensors, then changed: RuntimeError: .* modified by an inplace operation"),
    "several chunks": ("fmax", "self: (.*)", 'self: "self.numel() > 1 << 15 ? grad * 2 : {}"', "fmax, tensors, in chunks: "),
    "no elements": ("fmax", "other: (.*)",
        'other: "self.numel() == 0 ? grad.sum() : self.dim() == 0 && other.dim() == 0 ? grad * 3 : {}"',
        "fmax, tensors, no elements: "),
    "no dimension": (*3 * [None], "fmax, tensors, no dimension: .* the gradient of other "),
    "one scalar beside a vector": ("fmin", "self: (.*)", 'self: "self.dim() > other.dim() ? grad * 2 : {}"',
        "fmin, tensors, vector 0 beside scalars: "),
    "vmap over one argument": ("clamp_min.Tensor", r"\n  min: ", "\n  min: " + IN_PLACE.format("min"),
        "clamp_min, tensors, vmap over argument 0: RuntimeError: "),
    "a g that is written to": ("clamp_min.Tensor", "self: .*", "self: grad.masked_fill_(self < min, 0)",
        "clamp_min, tensors, eager: AssertionError: "),
    "a g that is not contiguous": ("minimum", "other: (.*)", 'other: "(grad.view(-1), {})"',
        "minimum, tensors, transposed: RuntimeError: "),
    "a tangent without a graph": ("clamp_max.Tensor", "result: (.*)", "result: ({}).detach()",
        "clamp_max, tensors, reverse over forward mode: RuntimeError: "),
    "inputs that are subclasses": ("clamp_max.Tensor", r"\n  max: ", "\n  max: " + IN_PLACE.format("max"),
        "OpInfo clamp_max, .* of subclasses: "),
    "an operator that has nothing to do with it": ("relu", "result, 0", "result, 1", "OpInfo relu, nn.functional.relu: "),
    "another at its own number": ("hardshrink", "self: (.*)", "self: at::where(self == lambd, grad, {})",
        "OpInfo hardshrink, nn.functional.hardshrink at special values in float64: a gradient changed"),
    "another at 0": ("softplus", "self: (.*)", "self: at::where(self == 0, grad, {})",
        "OpInfo softplus, nn.functional.softplus at special values in bfloat16: a gradient changed"),
    "another with an infinite gradient": ("threshold", "self: .*", "self: grad * (self > threshold)",
        "OpInfo threshold, nn.functional.threshold at special values in float64: a gradient changed"),
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
        text = mutated(text, entry, old, new) if entry else text
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


# What becomes what in a formula, the first that is there; each changes a gradient at a tie.
NEIGHBOURS = {
    r"\b0\.5\b": "1.",
    " / 2": "",
    " >= ": " > ",
    " <= ": " < ",
    " < ": " <= ",
    " > ": " >= ",
}


def neighbour(text):
    """What a line becomes, by the first rule that fits."""
    for old, new in NEIGHBOURS.items():
        if (changed := re.sub(old, new, text, count=1)) != text:
            return changed
    return text


def by_rule():
    """The formulas, where every line about the family has a mistake, and what has to be said of
    each: the operator, whether the line is about lists, and the argument."""
    said = []

    def line(of, found):
        if (changed := neighbour(found[0])) != found[0]:
            what = "tangent along" if found[1] == "result" else f"gradient of {found[1]}"
            said.append(f"{of}: .* the {what} ")
        return changed

    def entry(found):
        lists, operator = found[1], found[2].rstrip("_")
        if operator not in TABLE["operators"]:
            return found[0]
        of = f"{operator}, [^:]*foreach[^:]*" if lists else f"{operator}, (?![^:]*foreach)[^:]*"
        return re.sub(r"(?m)^  (self|other|min|max|result): .*$", partial(line, of), found[0])

    text = re.sub(r"(?m)^- name: (_foreach_)?(\w+)[.(].*\n(?:  .*\n)+", entry, TEXT)
    return text, said


@pytest.mark.slow
def test_mutants_by_rule(tmp_path):
    """All in one patch: every formula of the family has a mistake, and so have the
    functions where they are known."""
    text, wanted = by_rule()
    patches = [patch_of_text(tmp_path, YAML, TEXT, text)]
    if named("v2.13.0/joint").fits(RELEASE):
        old = shown(FUNCTIONS, RELEASE)
        new = MANUAL.sub(lambda found: "\n".join(map(neighbour_of_code, found[0].split("\n"))), old)
        patches.append(patch_of_text(tmp_path / "functions", FUNCTIONS, old, new))
        clamps = "gradient of self", "gradient of min", "gradient of max", "tangent along"
        wanted += [
            "clamp, numbers, .* the gradient of self ",
            *(f"clamp, tensors, .* the {w} " for w in clamps),
        ]
    assert len(wanted) >= 24
    failures = prove(*patches, convention=STOCK, unchanged=True)["failures"]
    missed = [what for what in wanted if not any(re.match(what, f) for f in failures)]
    assert missed == []


def neighbour_of_code(line):
    return line if line.lstrip().startswith("//") else neighbour(line)


@pytest.mark.slow
def test_what_is_right_holds(tmp_path):
    """Formulas that say the same in other words, and an in-place operator with one of its own."""
    new = mutated(TEXT, "relu", "self: .*", "self: at::where(result <= 0, 0, grad)")
    patch = patch_of_text(tmp_path, YAML, TEXT, new + HARDTANH)
    found = prove(patch, quick=False, unchanged=True, saved=True)
    assert found["failures"] == [] == found["not proved"] and found["samples"] > 0
    assert {line.partition(":")[0].split(", ")[1] for line in found[SAVED]} == {
        "nn.functional.hardtanh_"
    }


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
    """In vectors alone, of lines that are added to a file which no wheel has, and in
    what has to be differentiated."""
    first, second = KERNEL.patches
    text = second.read_text()
    for right, wrong in (
        ("(x != x) & (y == y)", "(x != x) & (x != x)"),
        ("isFwGradDefined(grad) ||", "false ||"),
        ("tensor_composite(grad, x, low, high)", "tensor_composite(grad, self, min, max)"),
    ):
        assert text.count(right) == 1
        text = text.replace(right, wrong)
    (tmp_path / "mine.patch").write_text(text)
    found = prove(first, tmp_path / "mine.patch", convention="joint", forward="2.15")
    wrong = {*found[GRADIENTS], *(f.partition(": ")[0] for f in found["failures"])}
    assert wrong >= {"fmax, tensors, in vectors", "maximum, tensors, dual numbers in backward"}
    assert wrong >= {f"clamp, tensors, {what} {ROUNDED}" for what in MIXED}
    assert not wrong & {"fmax, tensors, eager", "maximum, tensors, eager"}
    assert not any("nothing here calls it" in line for line in found["not proved"])


# ---- What is refused, and what is not proved ----------------------------------------------------


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
        FUNCTIONS, "static int64_t number = 2;\n"
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
    assert len(new_entries(before, after)) == 2
    other = after.replace("func: clamp_min(Tensor self, Scalar", "func: clamp_min(Scalar")
    with pytest.raises(Refusal, match="Only operators that are added can be .* here, clamp_min"):
        new_entries(before, other)


@of_kernel
def test_kernels_that_nothing_here_compiles_are_named(tmp_path):
    """Also where the patch has lost their source."""
    before = patched(tmp_path / "a", [], RELEASE)
    new_operators(tmp_path / "b", before, patched(tmp_path / "b", KERNEL.patches, RELEASE))
    assert [*not_built(tmp_path / "b")] == [
        "_clamp_backward_tensor: its kernel for CUDA, _clamp_backward_tensor",
        "_clamp_backward_tensor: its kernel for XPU, _clamp_backward_tensor_xpu",
        "_extremum_backward: its kernel for CUDA, extremum_backward",
    ]


@of_kernel
def test_dynamo_lists_the_operators_that_python_sees(tmp_path):
    """torchgen makes no Python function of a name that ends in `_backward`, and Dynamo's
    list has those of all others."""
    before = patched(tmp_path / "a", [], RELEASE)
    new_operators(tmp_path / "b", before, patched(tmp_path / "b", KERNEL.patches, RELEASE))
    parsed = gen.parse_native_yaml(str(tmp_path / "b/new.yaml"), str(TAGS)).native_functions
    seen = {f"torch.{f.func.name.name}" for f in parsed if should_generate_py_binding(f)}
    listed = additions(KERNEL.patches, "torch/_dynamo/trace_rules.py")
    assert seen == {line.strip(' ",') for line in listed}


# A file of which no wheel has anything: the second patch changes a function that the first adds.
IN_TURN = (
    "--- a/x.cpp\n+++ b/x.cpp\n@@ -1,2 +1,4 @@\n one\n+int f() {\n+  return 1; }\n two\n",
    "--- a/x.cpp\n+++ b/x.cpp\n@@ -9 +9,2 @@\n nine\n+ten\n"
    "@@ -2,3 +2,3 @@\n int f() {\n-  return 1; }\n+  return 2; }\n two\n",
    "--- a/x.cpp\n+++ b/x.cpp\n@@ -1,2 +1 @@\n-one\n int f() {\n",
)


def test_a_later_patch_changes_what_an_earlier_one_adds(tmp_path):
    """What is compiled is what the last one leaves, and only lines that are
    upstream's count as taken away."""
    patches = [tmp_path / f"{i}.patch" for i in range(3)]
    for patch, text in zip(patches, IN_TURN):
        patch.write_text(text)
    assert additions(patches[:1], "x.cpp") == ["int f() {", "  return 1; }"]
    assert additions(patches, "x.cpp") == ["int f() {", "  return 2; }", "ten"]
    assert not removes(patches[:2], "x.cpp") and removes(patches, "x.cpp")


@pytest.mark.parametrize("words", [["--quick"], ["--patch", "mine.patch"]])
def test_only_all_checks_of_a_series_are_recorded(words):
    with pytest.raises(SystemExit, match="2"):
        main(["--record", *words])


def test_a_series_claims_what_its_file_says():
    """And no more: what nodes save may not change."""
    joint, restored = named("v2.13.0/joint"), named("v2.15.0/restore-inclusive")
    assert joint.claim == Claim("joint", forward="2.15")
    assert restored.claim == Claim("inclusive")
    assert named("v2.13.0/strict").claim == Claim("joint", frozenset({"numbers"}))


def test_a_missing_compiler_is_named(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler -O1")
    with pytest.raises(Refusal, match="no no-such-compiler on PATH: install it"):
        compiler()


@pytest.mark.parametrize("words, code", [([], 1), (["--expect", "unchanged"], 0)])
def test_a_patch_that_does_nothing_is_not_proved(tmp_path, words, code):
    old = "- name: clamp_min(Tensor self, Scalar min) -> Tensor\n"
    patch = patch_of_text(tmp_path, YAML, TEXT, TEXT.replace(old, "# A comment.\n" + old))
    assert main(["--patch", str(patch), *words]) == code


UNKNOWN = "aten/src/ATen/native/cpu/BinaryOpsKernel.cpp"
COMMENT = ("- name: clamp_min(Tensor self, Scalar min) -> Tensor\n", "# A comment.\n")


def files(directory, texts):
    """A patch to several files: name: (text before, text after)."""
    parts = [patch_of_text(directory, name, *sides).read_text() for name, sides in texts.items()]
    path = directory / "mine.patch"
    path.write_text("".join(parts))
    return path


def with_comment(directory, texts):
    """And a comment in derivatives.yaml, so that it has a file that is known."""
    return files(
        directory, {YAML: (TEXT, TEXT.replace(COMMENT[0], COMMENT[1] + COMMENT[0])), **texts}
    )


@pytest.mark.parametrize("text", [
    "", "no patch at all\n", "--- a/README.md\n+++ b/README.md\n@@ -1 +1 @@\n-one\n+two\n",
    "--- a/test/test_jit.py\n+++ b/test/test_jit.py\n@@ -1 +1 @@\n-one\n+two\n",
    f"diff --git a/{UNKNOWN} b/other.cpp\nrename from {UNKNOWN}\nrename to other.cpp\n",
    f"--- a/{UNKNOWN}\n+++ b/{UNKNOWN}\n@@ -1 +1 @@\n-one\n+two\n",
])  # fmt: skip
@pytest.mark.parametrize("words", [[], ["--expect", "unchanged", "--allow-unproved"]])
def test_a_patch_of_nothing_that_is_known_is_refused(tmp_path, capsys, text, words):
    """Whatever it claims."""
    (tmp_path / "mine.patch").write_text(text)
    assert main(["--patch", str(tmp_path / "mine.patch"), *words]) == 2
    out = capsys.readouterr().out
    assert out.startswith("refused: ") and "holds" not in out


def known(name):
    text = of_the_wheel(name).read_text()
    return text, text.replace(
        "- func: clamp_min(Tensor self, Scalar min)", "- func: clamp_min(Tensor  self, Scalar min)"
    )


HEADER = "torch/csrc/autograd/FunctionsManual.h"
UNPROVED = {
    "a source that no wheel has": ({UNKNOWN: ("one\n", "two\n")}, UNKNOWN),
    "a rename": ({"README.md": ("one\n", "one\n# two\n")}, "README.md"),
    "an operator without a formula": ({NATIVE: known(NATIVE)}, NATIVE),
    "a header that no formula is for": (
        {HEADER: ((h := of_the_wheel(HEADER).read_text()), h + "// end\n")},
        HEADER,
    ),
}


@pytest.mark.parametrize("texts, name", UNPROVED.values(), ids=UNPROVED)
def test_a_file_that_is_not_looked_at_is_named(tmp_path, capsys, texts, name):
    """Beside one that is, and no sentence says that all of it holds."""
    command = ["--patch", str(with_comment(tmp_path, texts)), "--expect", "unchanged"]
    assert main(command) == 1
    out = capsys.readouterr().out
    assert f"not proved:\n  {name}" in out
    assert "What was checked holds: no gradient changed." in out and "All of it" not in out
    assert main([*command, "--allow-unproved"]) == 0
    assert main(["--patch", "none.patch"]) == 2
    assert "none.patch" in capsys.readouterr().out


def test_lines_that_are_taken_away_are_not_proved(tmp_path):
    """Of a file that no wheel has what is added is compiled; a header is
    compiled for some operators alone."""
    patch = files(
        tmp_path,
        {UNKNOWN: ("one\n", "two\n"), HEADER: (h, h.replace("#pragma once", "# pragma once"))},
    )
    said = [*unlooked([patch], {HEADER: h}, {HEADER: h, UNKNOWN: "two\n"})]
    assert [line.partition(":")[0] for line in said] == [UNKNOWN, HEADER]
    patch = files(tmp_path, {UNKNOWN: ("", "two\n"), HEADER: (h, h + "// end\n")})
    assert [*unlooked([patch], {HEADER: h}, {HEADER: h, UNKNOWN: "two\n"})] == []


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
    assert after[name].endswith("// the end\n") and [*unlooked([patch], {}, after)] == []


# ---- The gradients of the torch that is installed, held to what a patch claims ------------------


@pytest.fixture(scope="module")
def gradients():
    found, errors, _, _ = ask("table", "", "aot_eager")
    lists = "(max|min)imum, numbers, (.*in place|forward mode of .*with bool)"
    stocks = "clamp, tensors, vector [12] beside scalars" if RELEASE < "2.14" else " "
    assert not [key for key in errors if not re.match(f"{lists}|{stocks}", key)]
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
    """clamp_min at `half` beside maximum at `joint` is no convention, although each is in the
    table. A patch about other operators may not touch it either."""
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


@of_a_convention
def test_a_failure_names_the_point_and_the_argument(gradients, capsys):
    """And those that only the point or the way to call tells apart are one line."""
    key = "clamp_min, tensors, eager"
    mine = {key: gradients[key].clone(), f"{key} again": gradients[key].clone()}
    for rows in mine.values():
        rows[(rows[:, 0] == 0) & (rows[:, 1] == 0), 4] += 2
    failures = held(mine, gradients, Claim(STOCK))[1]
    right = {"inclusive": "0", "joint": "0.5"}[STOCK]
    at = rf"{key}: at self = 0, min = 0, g = 1 \(row \d+ of \d+\) "
    assert re.match(
        rf"{at}the gradient of min is [\d.]+, not {right} as {STOCK} has it$", failures[0]
    )
    found = {CODE: [], "not proved": [], GRADIENTS: {}, SAVED: [], "convention": STOCK}
    report(found | {"failures": failures}, Claim(STOCK))
    assert capsys.readouterr().out.count("the gradient of min") == 1


def test_what_is_saved_before_and_after():
    before = {"relu": ["result: float64 [3]"], "relu_": ["result: float64 [3]"]}
    after = {"relu": ["self: float64 [3]"], "relu_": ["result: float64 [3]"]}
    (said,) = saves(before, after)
    assert said == "relu: it saves no more result: float64 [3] and now self: float64 [3]"
    twice = {"relu": ["result: float64 [3]"] * 2, "relu_": ["result: float64 [3]"]}
    assert [*saves(before, twice)] and not [*saves(before, before)]


@of_a_convention
def test_forward_mode_as_a_release_has_it(gradients):
    """At a NaN that of 2.15 is no transpose: a claim says which of the two is meant."""
    if STOCK != "joint":
        pytest.skip("a release before it")
    moved = {k: v + (v == 0) for k, v in gradients.items() if "tensors, eager" in k}
    of = lambda claim: {f.partition(":")[0] for f in held(gradients, gradients | moved, claim)[1]}  # noqa: E731
    key = "maximum, tensors, forward mode"
    assert key in of(Claim(STOCK)) and key not in of(Claim(STOCK, forward="2.15"))


@pytest.mark.parametrize("gradient, holds", [(0.5, True), (1.0, True), (0.25, False)])
def test_pairs_may_see_a_tie_where_forward_sees_none(gradients, gradient, holds):
    """As 2.15 does; whoever follows forward gives self all of it."""
    keys = [key for key in gradients if key.endswith(ROUNDED)]
    moved = {key: gradients[key].clone() for key in keys}
    for rows in moved.values():
        rows[:, 4] = gradient
    failures = held(gradients | moved, gradients, Claim("joint"))[1]
    wrong = {f.partition(": ")[0] for f in failures} & {*keys}
    assert len(keys) == len(MIXED) and wrong == (set() if holds else {*keys})


def test_gradients_at_no_points_hold_nothing(gradients):
    none = {key: rows[:0] for key, rows in gradients.items()}
    for sides in ((none, none), (gradients, none), (none, gradients)):
        with pytest.raises(AssertionError, match="no points"):
            changes(*sides)


def test_a_sample_around_the_patched_node_and_a_form_that_raises(monkeypatch):
    rows, around = torch.ones(1, 3), {"ProvedReluBackward0", "ReluBackward0"}
    stock = {"relu": rows, "relu_": rows}, {}, {}, {}
    mine = {"relu": rows}, {"relu_": "TypeError"}, {"relu": around, "of none": {"aten::relu"}}, {}
    answers = {"": stock, "without": stock, "with": mine}
    monkeypatch.setattr(proof, "ask", lambda task, library: answers[library])
    found = {"failures": [], GRADIENTS: {}, SAVED: []}
    proof.compared("samples", ["without", "with"], [[]] * 3, found)
    raised, *nodes = found["failures"]
    assert raised == "relu_: TypeError" and found[GRADIENTS] == {"relu_": (1, 1)}
    assert [f.partition(":")[0] for f in nodes] == ["relu", "of none"]


def test_gradients_of_samples_are_compared_where_gradcheck_fails(monkeypatch):
    """On torch.max and torch.min of two Tensors too."""
    monkeypatch.setattr(TestGradients, "_check_helper", lambda *_, **__: 1 / 0)
    found, errors, nodes, _ = opinfo.gradients(["maximum", "minimum"])
    forms = "maximum, maximum", "maximum, max", "minimum, minimum", "minimum, min"
    assert (
        {key for key in found if "special" not in key}
        == nodes.keys()
        == {f"OpInfo {form}" for form in forms}
    )
    assert errors.keys() == {f"{key}: gradcheck" for key in nodes}


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
    assert len(one_by_one(torch.maximum, [x, y], g, way=jvp, vector=0)) == 2
    right = torch.func.jvp
    wrong = lambda *args: (right(*args)[0], right(*args)[1].double())  # noqa: E731
    monkeypatch.setattr(torch.func, "jvp", wrong)
    with pytest.raises(AssertionError, match="dtype"):
        one_by_one(torch.maximum, [x, y], g, way=jvp, vector=0)
