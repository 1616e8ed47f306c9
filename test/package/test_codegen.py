"""The generator: what comes out for one operator, and that a mistake stops the build and says where."""

import sys
from pathlib import Path

import pytest
import torch
from expecttest import assert_expected_inline

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from codegen import check, generate  # noqa: E402

NATIVE = ROOT / "csrc/native_functions.yaml"
DERIVATIVES = ROOT / "derivatives.yaml"


def block(text: str, start: str) -> str:
    """From the line that starts so to the first line that is a closing brace."""
    lines = text.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith(start))
    end = next(i for i in range(begin, len(lines)) if lines[i].startswith("}"))
    return "\n".join(line.rstrip() for line in lines[begin : end + 1])


@pytest.fixture(scope="module")
def files():
    return generate.render(NATIVE, DERIVATIVES)


def test_node_of_one_operator(files):
    apply = block(
        files["Functions.cpp"], "static variable_list ClampMingradBackward0_apply_functional"
    )
    # 2.11 and later differ in white space alone.
    assert_expected_inline(
        "\n".join(line for line in apply.splitlines() if line.strip()),
        """\
static variable_list ClampMingradBackward0_apply_functional(
  variable_list&& grads,
  std::array<bool,1> needs_input_grad, ::std::optional<at::Scalar>& max, ::std::optional<at::Scalar>& min, Tensor& self)
{
  IndexRangeGenerator gen;
  auto self_ix = gen.range(1);
  variable_list grad_inputs(gen.size());
  const auto& grad = grads[0];
  bool any_grad_defined = any_variable_defined(grads);
  if (needs_input_grad[/*self*/0]) {
    auto grad_result = any_grad_defined ? (clamp_mingrad_backward(grad, self, min, max)) : Tensor();
    copy_range(grad_inputs, self_ix, grad_result);
  }
  return grad_inputs;
}""",
    )


def test_below_autograd_an_operator_without_kernels_is_aten(files):
    assert_expected_inline(
        block(files["VariableType.cpp"], "[[maybe_unused]] inline at::Tensor clamp_mingrad("),
        """\
[[maybe_unused]] inline at::Tensor clamp_mingrad(c10::DispatchKeySet dispatchKeySet, const at::Tensor & self, const ::std::optional<at::Scalar> & min=::std::nullopt, const ::std::optional<at::Scalar> & max=::std::nullopt) {
    if (!has_functorch_level()) return at::clamp(self, min, max);
    return clampgrad::_ops::clamp_mingrad::redispatch(dispatchKeySet, self, min, max);
}""",
    )


def kernel(files, start: str) -> str:
    """Of an operator, without its signature: what the dispatcher calls."""
    return block(files["FrontDoors.cpp"].partition("namespace native {")[2], start).partition("\n")[
        2
    ]


def test_kernels_that_call_front_doors(files):
    assert_expected_inline(
        kernel(files, "at::Tensor clamp_min(const at::Tensor & self, const at::Tensor & min"),
        """\
  return front_door::clamp_min(self, min, parse_convention(gradient, maximize));
}""",
    )
    assert_expected_inline(
        kernel(files, "at::Tensor & clamp_out("),
        """\
  parse_convention(gradient, maximize);
  return at::clamp_out(out, self, min, max);
}""",
    )
    assert_expected_inline(
        kernel(files, "at::Tensor fmax("),
        """\
  return front_door::extremum(Extremum::fmax, self, other, parse_exact(gradient, "fmax"));
}""",
    )
    assert_expected_inline(
        kernel(files, "at::Tensor & clamp_mingrad_("),
        """\
  return front_door::clamp_(self, min, max, {Gradient::min_norm, false});
}""",
    )
    mixed = "at::Tensor & clamp_(at::Tensor & self, const at::Tensor & min, const at::Scalar & max"
    assert_expected_inline(
        kernel(files, mixed),
        """\
  return front_door::clamp_(self, min, max, parse_convention(gradient, maximize));
}""",
    )


def test_function_for_cpp(files):
    assert_expected_inline(
        block(files["FrontDoors.cpp"], "at::Tensor clamp("),
        """\
at::Tensor clamp(
    const at::Tensor& self,
    const Bound& min,
    const Bound& max,
    Gradient gradient,
    bool maximize) {
  const auto c = checked_convention(gradient, maximize); // before the bounds
  return with_overload(
      [&](const auto&... bounds) -> decltype(auto) {
        if (!all_tensors(is_plain, self, bounds...)) {
          return clampgrad::clamp(self, bounds..., name_of(c.gradient), c.maximize);
        }
        const Profiled profiled("clampgrad::clamp", self, bounds..., name_of(c.gradient), c.maximize);
        return front_door::clamp(self, bounds..., c);
      },
      min, max);
}""",
    )


def test_every_schema_is_registered_as_it_is_written(files):
    for entry in check.load_entries(NATIVE):
        if "node_alone" in entry.get("dispatch", {}).values():
            continue  # no operator: its node alone is generated
        # torchgen prints a string default in the quotes of the schema language.
        assert entry["func"].replace('"', r"\"") in files["Register.cpp"]


def test_generating_twice_touches_nothing(tmp_path):
    generate.generate(ROOT, tmp_path)
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}
    assert generate.generate(ROOT, tmp_path) == sorted(tmp_path.rglob("*.cpp"))
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")} == before


FORMULA = "  self: clamp_mingrad_backward(grad, self, min, max)\n"
MISTAKES = {
    "an unknown operator": (
        "clamp_mingrad(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor\n  self",
        "clamp_maxgrad(Tensor self) -> Tensor\n  self",
        "unknown operator 'clamp_maxgrad(Tensor self) -> Tensor'; native_functions.yaml has no such operator",
    ),
    "another schema": (
        "clamp_min_mingrad(Tensor self, Scalar min)",
        "clamp_min_mingrad(Tensor self, Scalar? min)",
        "its schema is clamp_min_mingrad(Tensor self, Scalar min) -> Tensor",
    ),
    "a misspelt input": (
        FORMULA,
        FORMULA.replace("self:", "slef:"),
        "'slef' of clamp_mingrad, which is neither",
    ),
    "a misspelt name": (
        FORMULA,
        FORMULA.replace("grad, self", "grad, slef"),
        "unknown name 'slef'",
    ),
    "a formula for a number": (
        FORMULA,
        FORMULA + "  min: grad\n",
        "'min' of clamp_mingrad, which is no Tensor",
    ),
    "a missing formula": (FORMULA, "", "clamp_mingrad has no formula for self"),
    "a superfluous formula": (
        "  output_differentiability: [False]\n",
        "  output_differentiability: [False]\n  bits: grad\n",
        "superfluous formula: no output of _mask is differentiable",
    ),
    "a formula twice": (
        "# ---- Any convention, composed",
        "- name: clamp_mingrad(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor\n"
        + FORMULA
        + "# -",
        "a second formula for clamp_mingrad",
    ),
    "a formula for a front door": (
        "# ---- Any convention, composed",
        '- name: clamp_min(Tensor self, Scalar min, *, str gradient="min_norm", bool maximize=False) -> Tensor\n'
        "  self: grad\n# -",
        "superfluous formula: clamp_min takes none",
    ),
    "no YAML": ("derivatives.yaml.", "x\n- : [", "not valid YAML"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_names_line_operator_and_release(mistake, tmp_path):
    old, new, complaint = MISTAKES[mistake]
    text = DERIVATIVES.read_text()
    assert text.count(old) >= 1, "the mistake no longer fits the file"
    broken = tmp_path / "derivatives.yaml"
    broken.write_text(text.replace(old, new, 1))
    with pytest.raises(check.CodegenError) as error:
        generate.render(NATIVE, broken)
    message = str(error.value)
    assert complaint in message
    assert f"(torch {torch.__version__})" in message
    line = int(message.split(":")[1])
    assert message.startswith("derivatives.yaml:") and 1 <= line <= len(
        broken.read_text().splitlines()
    )


def test_an_operator_without_any_entry(tmp_path):
    text = DERIVATIVES.read_text()
    start = text.index("- name: _clamp_straight_through")
    broken = tmp_path / "derivatives.yaml"
    broken.write_text(text[:start] + text[text.index("- name", start + 1) :])
    with pytest.raises(check.CodegenError, match="no formula for _clamp_straight_through"):
        generate.render(NATIVE, broken)


def test_what_is_left_in_atens_namespace_is_found():
    with pytest.raises(RuntimeError, match=r"generated X.cpp:2 still says 'at::_ops::'"):
        generate.check_output("X.cpp", "int x;\nat::_ops::clamp::call(x);\n")
