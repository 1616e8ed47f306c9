"""`verify` finds nothing wrong with a right series, and says what is wrong with a wrong one."""

import difflib
import re

import pytest

from lab.series import FUNCTIONS, YAML, Refusal, Series, all_series
from lab.verify.__main__ import NEVER, RELEASE, main, report, run_matrix, verify
from lab.verify.library import run_compiler
from lab.verify.upstream_files import apply_patches, of_the_wheel
from testing.releases import OF_NO_CONVENTION

pytestmark = pytest.mark.thorough

MINOR = RELEASE.rpartition(".")[0]
MINE = [s for s in all_series().values() if s.fits(RELEASE) and s.convention]
# The series that gives this release the gradients of 2.15, if it lacks them.
JOINT = [p for s in MINE if s.convention == "joint" and not s.scope for p in s.patches]
TEXT = of_the_wheel(YAML).read_text()


def series_of(directory, texts, *before):
    """A series of patches and one more to several files: name: (text before, text after)."""
    parts = [
        "".join(difflib.unified_diff(*(s.splitlines(True) for s in sides), f"a/{n}", f"b/{n}"))
        for n, sides in texts.items()
    ]
    (directory / "mine.patch").write_text("".join(parts))
    patches = [*before, directory / "mine.patch"]
    return Series("mine", [MINOR], "joint", frozenset(), "", patches)


def changed(text, entry, old, new):
    """A derivatives.yaml with another formula in one entry."""
    formula = re.search(rf"- name: {re.escape(entry)}\(.*\n(?:  .*\n)+", text).group()
    mutated, count = re.subn(old, new, formula)
    assert count == 1, entry
    return text.replace(formula, mutated)


# Formulas of `joint` with one mistake each: the entry, what takes the place of what in it, and what
# has to be said.
STRICT = "grad.masked_fill(self {} other, 0)"
MISTAKES = {
    "one mask that lets the bound through": (
        "clamp_min",
        "self > min",
        "self >= min",
        "clamp_min, numbers: Wrong: gradient of Tensor 0",
    ),
    "strict masks on both sides of a tie": (
        "maximum",
        "self: .*\n  other: .*",
        f"self: {STRICT.format('<=')}\n  other: {STRICT.format('>=')}",
        "maximum, tensors: Wrong: gradient of Tensor 1",
    ),
    "a mask that is multiplied": (
        "minimum",
        "self: .*",
        "self: grad * ((self < other).to(grad.scalar_type()) + (self == other) / 2.)",
        "minimum, tensors: Wrong: gradient of Tensor 0",
    ),
    "the sign of what is blocked": (
        "clamp_max",
        "self: (.*)",
        r"self: (\1).copysign(grad)",
        "clamp_max, numbers: Wrong: sign of the gradient of Tensor 0",
    ),
    "forward mode that is forgotten": (
        "fmax",
        "result: .*",
        "result: self_t.clone()",
        "fmax, tensors: Wrong: tangent",
    ),
    "a bound without a gradient": (
        "clamp_max.Tensor",
        "max: .*",
        "max: at::zeros_like(grad)",
        "clamp_max, tensors: Wrong: gradient of Tensor 1",
    ),
    "a comparison in float32": (
        "clamp_min.Tensor",
        r"  min: .*",
        lambda line: re.sub(r"\b(self|min)\b(?!:)", r"\1.to(at::kFloat)", line[0]),
        "clamp_min, tensors: Wrong: gradient of Tensor 1",
    ),
    "a size that no symbol is": (
        "fmin",
        "other: (.*)",
        r'other: "self.numel() == 1 ? (\1) * 1 : \1"',
        r"fmin, tensors: \w+: .*fake tensor",
    ),
}
IN_CPLUSPLUS = "below = (self < min).logical_and(min <= max)"


@pytest.mark.slow
def test_mistakes_are_noticed(tmp_path):
    before = apply_patches(tmp_path / "before", JOINT, RELEASE)
    texts = {YAML: [before[YAML]] * 2}
    messages = {mistake: message for mistake, (*_, message) in MISTAKES.items()}
    for entry, old, new, _ in MISTAKES.values():
        texts[YAML][1] = changed(texts[YAML][1], entry, old, new)
    if "v2.13.0/joint" in {s.name for s in MINE}:  # which changes C++, too
        wrong = before[FUNCTIONS].replace(IN_CPLUSPLUS, IN_CPLUSPLUS.replace("<=", "<"))
        texts[FUNCTIONS] = before[FUNCTIONS], wrong
        messages["in a function"] = "clamp, tensors: Wrong: gradient of Tensor 1"
    # One series has them all, because compiling it takes minutes.
    outcome = verify(series_of(tmp_path, texts, *JOINT))
    lines = {f"{operator}, {kind}: {error}" for operator, kind, _, error in outcome["wrong"]}
    missed = {
        mistake
        for mistake, message in messages.items()
        if not any(re.match(message, line) for line in lines)
    }
    assert missed == set(), "\n".join(sorted(lines))


@pytest.mark.slow
@pytest.mark.parametrize("name", [s.name for s in MINE])
def test_a_series_for_this_release_holds(name, capsys):
    assert main(["--series", name]) == 0
    out = capsys.readouterr().out
    assert f"{name} applies" in out and "clamp, tensors: " in out and NEVER[0] in out


@pytest.mark.slow
@pytest.mark.skipif(OF_NO_CONVENTION, reason="fmax and fmin of this release have none")
def test_torch_itself_has_the_convention_of_its_release():
    """So what `verify` leaves out is due to PyTorch, and not to a series."""
    outcome = run_matrix()
    assert outcome["wrong"] == [] and len(outcome["held"]) == 10


REFUSED = {
    "mine.patch does not apply": (YAML, "one\n", "two\n"),
    "torchgen does not take": (YAML, TEXT, changed(TEXT, "clamp_min", "  self:", "  selff:")),
    "relu.*, which is not of the family": (
        YAML,
        TEXT,
        changed(TEXT, "relu", "result, 0", "result, 1"),
    ),
    "Manual.cpp of .* is not known|does not apply": (FUNCTIONS, "one\n", "two\n"),
    "mine changes no formula": ("README.md", "one\n", "two\n"),
}


@pytest.mark.parametrize("message, texts", REFUSED.items(), ids=REFUSED)
def test_what_is_refused(tmp_path, message, texts):
    name, *sides = texts
    with pytest.raises(Refusal, match=message):
        verify(series_of(tmp_path, {name: sides}))


@pytest.mark.slow
def test_an_error_of_the_compiler_is_shown(tmp_path):
    texts = TEXT, changed(TEXT, "clamp_min", "self: where.", "self: where(,")
    with pytest.raises(Refusal, match="does not compile:\n.*proved.cpp:.* error: "):
        verify(series_of(tmp_path, {YAML: texts}))


def test_a_series_for_another_release_is_refused(capsys):
    other = next(s for s in all_series().values() if not s.fits(RELEASE))
    assert main(["--series", other.name]) == 2
    assert f"refused: {other.name} is for {other.span}, and this is" in capsys.readouterr().out


def test_a_missing_compiler_is_named(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler -O1")
    with pytest.raises(Refusal, match="no no-such-compiler on PATH: install it"):
        run_compiler()


def test_a_report_says_what_was_not_looked_at(tmp_path, capsys):
    """And that nothing more holds than some cells."""
    series = series_of(tmp_path, {"test/test_ops.py": ("one\n", "two\n")})
    wrong = [
        ["fmax", "tensors", f"Cell({v})", f"Wrong: tangent: {v} instead of 2"] for v in ("0", "[1]")
    ]
    outcome = {"changed": ["fmax"], "files": ["test/test_ops.py"], "contexts": 3, "wrong": wrong}
    report(series, outcome | {"held": {"fmax, tensors": 5}, "left out": {"a reason": 7}})
    looked_at, _, not_looked_at = capsys.readouterr().out.partition("not looked at:\n")
    assert "  fmax, tensors: 5 cells hold\n" in looked_at
    for line in ("test/test_ops.py", "7 cells: a reason", *NEVER):
        assert f"  {line}\n" in not_looked_at
    assert "WRONG: fmax, tensors: Wrong: tangent (2 cells)\n  Cell(0)\n" in not_looked_at
