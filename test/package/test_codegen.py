"""The generator: a mistake stops the build with an error that says where."""

import re
from pathlib import Path

import pytest
import torch

from codegen import check, generate

ROOT = Path(__file__).resolve().parents[2]

CONVENTIONS, NATIVE, DERIVATIVES = (ROOT / name for name in generate.YAMLS)


def test_generating_twice_touches_nothing(tmp_path):
    generate.generate(ROOT, tmp_path)
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}
    assert generate.generate(ROOT, tmp_path) == sorted(tmp_path.rglob("*.cpp"))
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")} == before


NAME = "clamp_mingrad(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor"
FORMULA = "  self: clamp_mingrad_backward(grad, self, min, max)\n"
CONSTANT = "  output_differentiability: [False]\n"
ENTRY = re.search("- name: _clamp_straight_through.*?(?=- name)", DERIVATIVES.read_text(), re.S)[0]
BOUND = "clamp_min_mingrad(Tensor self, Scalar min"
WAY = 'str gradient="min_norm", bool maximize=False'
FRONT_DOOR = f"clamp_min(Tensor self, Scalar min, *, {WAY}) -> Tensor"
# A text in derivatives.yaml, its replacement, and the error.
MISTAKES = [
    (f"{NAME}\n", "clamp_maxgrad(Tensor self) -> Tensor\n", "unknown operator 'clamp_maxgrad(Tensor self)"),
    (f"{BOUND})", BOUND.replace("Scalar", "Scalar?") + ")", f"its schema is {BOUND}) -> Tensor"),
    (FORMULA, FORMULA.replace("self:", "slef:"), "'slef' of clamp_mingrad, which is neither"),
    (FORMULA, FORMULA.replace("grad, self", "grad, slef"), "unknown name 'slef'"),
    (FORMULA, FORMULA.replace("grad, self", "grad, slef<0"), "unknown name 'slef'"),
    (FORMULA, FORMULA + "  min: grad\n", "'min' of clamp_mingrad, which is no Tensor"),
    (FORMULA, "", "clamp_mingrad has no formula for self"),
    (CONSTANT, CONSTANT + "  bits: grad\n", "superfluous formula: no output of _mask"),
    (f"- name: {NAME}\n", f"- name: {NAME}\n{FORMULA}- name: {NAME}\n", "a second formula for clamp_mingrad"),
    ("- name: c", f"- name: {FRONT_DOOR}\n  self: grad\n- name: c", "superfluous formula: clamp_min takes none"),
    (ENTRY, "", "no formula for _clamp_straight_through"),
    ("derivatives.yaml.", "x\n- : [", "not valid YAML"),
]  # fmt: skip


@pytest.mark.parametrize("old, new, complaint", MISTAKES)
def test_a_mistake_names_line_operator_and_release(old, new, complaint, tmp_path):
    text = DERIVATIVES.read_text()
    assert text.count(old) >= 1, "the mistake no longer fits the file"
    broken = tmp_path / "derivatives.yaml"
    broken.write_text(text.replace(old, new, 1))
    with pytest.raises(check.CodegenError) as error:
        generate.render(CONVENTIONS, NATIVE, broken)
    message = str(error.value)
    assert complaint in message and f"(torch {torch.__version__})" in message
    file, line, _ = message.split(":", 2)
    assert file == "derivatives.yaml"
    assert 1 <= int(line) <= len(broken.read_text().splitlines())


def test_what_is_left_in_atens_namespace_is_found():
    with pytest.raises(RuntimeError, match=r"generated X.cpp:2 still says 'at::_ops::'"):
        generate.check_output("X.cpp", "int x;\nat::_ops::clamp::call(x);\n")
