#include "autograd/formulas.h"

#include "Kernels.h"
#include "Operators.h"
#include "autograd/kernels.h"
#include "kernels/check.h"
#include "ops/bounds.h"
#include "ops/path.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/where.h>

namespace clampgrad {

using at::Tensor;

namespace {

constexpr auto kNotLinear =
    "clampgrad: forward mode is not defined for the gradients 'with_grad' and 'restoring', which "
    "are not linear in the incoming gradient";

void check_linear(int64_t gate) {
  TORCH_CHECK_NOT_IMPLEMENTED(is_linear(static_cast<Gate>(gate)), kNotLinear);
}

// An exact 0 where shut, whatever g is there.
Tensor select(const Tensor& open, const Tensor& grad) {
  return at::where(open, grad, 0);
}

Position position_of(const Tensor& self, const Tensor& result) {
  return {self.eq(result), self.lt(result), self.gt(result)};
}

Position position_in(const Tensor& codes) {
  return {codes.eq(position::inside), codes.eq(position::below), codes.eq(position::above)};
}

bool is_with_grad(Gate gate) {
  return gate == Gate::with_grad || gate == Gate::with_grad_maximize;
}

Tensor open_with_grad(const Tensor& grad, const Position& at, Gate gate) {
  // Descent moves x by -grad: up where grad < 0.
  const bool descent = gate == Gate::with_grad;
  const auto up = descent ? grad.le(0) : grad.ge(0), down = descent ? grad.ge(0) : grad.le(0);
  return at.inside.logical_or(at.below.logical_and(up)).logical_or(at.above.logical_and(down));
}

// The gradient through one of the two bounds of minimum(maximum(x, lo), hi), ties shared.
Tensor shared_tie(const Tensor& grad, const Tensor& wins, const Tensor& ties) {
  return at::where(wins, grad, at::where(ties, grad * 0.5, 0));
}

Tensor half_gradient(const Tensor& grad, const Tensor& self, const Number& min, const Number& max) {
  auto result = grad;
  if (max) {
    const auto raised = min ? at::clamp_min(self.detach(), *min) : self;
    result = shared_tie(result, raised.lt(*max), raised.eq(*max));
  }
  if (min) {
    result = shared_tie(result, self.gt(*min), self.eq(*min));
  }
  return result;
}

Tensor open_between(const Tensor& self, const Number& min, const Number& max, bool inclusive) {
  const auto over = [&] { return inclusive ? self.ge(*min) : self.gt(*min); };
  const auto under = [&] { return inclusive ? self.le(*max) : self.lt(*max); };
  return min && max ? over().logical_and(under()) : min ? over() : under();
}

// decode() of csrc/kernels/gate.h on tensors: the gradient where the codes are given.
Tensor decode_composed(const Tensor& grad, const Tensor& codes, Gate gate) {
  switch (gate) {
    case Gate::strict:
    case Gate::inclusive:
      return select(codes.to(at::kBool), grad);
    case Gate::half:
      return at::where(
          codes.eq(weight::one),
          grad,
          at::where(
              codes.eq(weight::half), grad * 0.5, select(codes.eq(weight::quarter), grad * 0.25)));
    default:
      return pseudo_gradient_at(grad, position_in(codes), gate);
  }
}

} // namespace

bool takes_kernel(const Tensor& grad) {
  return is_plain(grad) && !(at::GradMode::is_enabled() && grad.requires_grad()) &&
      !grad._fw_grad(0).defined();
}

Tensor pseudo_gradient_at(const Tensor& grad, const Position& at, Gate gate) {
  return clampgrad::_pseudo_gradient(
      grad, at.inside, at.below, at.above, static_cast<int64_t>(gate));
}

Tensor pseudo_gradient_backward(
    const Tensor& grad,
    const Tensor& grad_output,
    const Tensor& inside,
    const Tensor& below,
    const Tensor& above,
    int64_t gate_) {
  const auto gate = static_cast<Gate>(gate_);
  return select(
      is_with_grad(gate) ? open_with_grad(grad_output, {inside, below, above}, gate) : inside,
      grad);
}

Tensor pseudo_gradient_jvp(const Tensor&) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, kNotLinear);
}

void check_has_tangent(Gradient gradient) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      gradient != Gradient::with_grad && gradient != Gradient::restoring, kNotLinear);
}

Tensor pseudo_gradient(const Tensor& grad, const Tensor& self, const Tensor& result, Gate gate) {
  return pseudo_gradient_at(grad, position_of(self, result), gate);
}

Tensor clamp_pinned_backward(
    const Tensor& grad, const Tensor& self, const Number& min, const Number& max, int64_t gate_) {
  const auto gate = static_cast<Gate>(gate_);
  switch (gate) {
    case Gate::strict:
    case Gate::inclusive:
      return select(open_between(self, min, max, gate == Gate::inclusive), grad);
    case Gate::half:
      return half_gradient(grad, self, min, max);
    default:
      return pseudo_gradient(grad, self, at::clamp(self.detach(), min, max), gate);
  }
}

Tensor clamp_pinned_jvp(
    const Tensor& tangent, const Tensor& self, const Number& min, const Number& max, int64_t gate) {
  check_linear(gate);
  return clamp_pinned_backward(tangent, self, min, max, gate);
}

Tensor gate_backward(const Tensor& grad, const Tensor& bits, int64_t gate_, int64_t order) {
  const auto gate = static_cast<Gate>(gate_);
  if (takes_kernel(grad)) {
    return decode_gate(grad, bits, gate, order);
  }
  return decode_composed(
      grad, clampgrad::_codes_symint(bits, grad.sym_sizes(), planes(gate), order), gate);
}

Tensor gate_jvp(const Tensor& tangent, const Tensor& bits, int64_t gate, int64_t order) {
  check_linear(gate);
  return gate_backward(tangent, bits, gate, order);
}

Tensor clamp_mingrad_backward_composed(
    const Tensor& grad, const Tensor& self, const Number& min, const Number& max) {
  check_has_bound(min, max);
  return select(open_between(self, in_dtype(min, self), in_dtype(max, self), false), grad);
}

namespace native {

Tensor pseudo_gradient(
    const Tensor& grad,
    const Tensor& inside,
    const Tensor& below,
    const Tensor& above,
    int64_t gate_) {
  const auto gate = checked_enum<Gate>(gate_, kGates);
  if (is_with_grad(gate)) {
    return select(open_with_grad(grad, {inside, below, above}, gate), grad);
  }
  TORCH_CHECK_VALUE(
      gate == Gate::restoring || gate == Gate::restoring_maximize,
      "clampgrad: gate ",
      gate_,
      " is no pseudo-gradient");
  const auto& up = gate == Gate::restoring ? above : below;
  const auto& down = gate == Gate::restoring ? below : above;
  return at::where(inside, grad, up.to(grad.dtype()) - down.to(grad.dtype()));
}

} // namespace native
} // namespace clampgrad
