#include "autograd/formulas.h"

#include "Kernels.h"
#include "Operators.h"
#include "autograd/composed.h"
#include "base/bounds.h"

#include <ATen/ops/clamp.h>

namespace clampgrad {

using namespace composed;
using at::Tensor;
using E = TensorElement;

namespace {

constexpr auto kNotLinear =
    "clampgrad: forward mode is not defined for the gradients 'with_grad' and 'restoring', which "
    "are not linear in the incoming gradient";

TensorMask as_mask(const Tensor& t) {
  return TensorMask([t](const Tensor&) { return t; });
}

template <Gate gate>
Tensor linear_gradient(
    const Tensor& grad, const Tensor& self, const Number& min, const Number& max) {
  const Bounds<TensorValue> bounds = {min.value_or(0), max.value_or(0)};
  const auto everywhere = E::comparable(self);
  return with_bounds(min.has_value(), max.has_value(), [&](auto has_lo, auto has_hi) {
    const auto at = weight<gate, decltype(has_lo)::value, decltype(has_hi)::value>(
        TensorValue(self), everywhere, bounds);
    return weighed<gate, E>(TensorValue(grad), at).get(grad);
  });
}

} // namespace

Tensor pseudo_gradient_backward(
    const Tensor& grad,
    const Tensor& grad_output,
    const Tensor& inside,
    const Tensor& below,
    const Tensor& above,
    int64_t gate_) {
  return with_constant<kGates>(static_cast<Gate>(gate_), [&](auto gate) {
    const auto open = passes<decltype(gate)::value, E>(
        TensorValue(grad_output),
        Position<TensorMask>{as_mask(inside), as_mask(below), as_mask(above)});
    return select(open, TensorValue(grad), TensorValue()).get(grad);
  });
}

Tensor if_linear(const Tensor& tangent, int64_t gate) {
  TORCH_CHECK_NOT_IMPLEMENTED(is_linear(static_cast<Gate>(gate)), kNotLinear);
  return tangent;
}

void check_has_tangent(Sharing sharing) {
  TORCH_CHECK_NOT_IMPLEMENTED(is_linear(sharing), kNotLinear);
}

Tensor clamp_pinned_backward(
    const Tensor& grad, const Tensor& self, const Number& min, const Number& max, int64_t gate_) {
  return with_constant<kGates>(static_cast<Gate>(gate_), [&](auto constant) {
    constexpr Gate gate = decltype(constant)::value;
    if constexpr (is_linear(gate)) {
      return linear_gradient<gate>(grad, self, min, max);
    } else {
      const TensorValue x = self, y = at::clamp(self.detach(), min, max); // only compared with
      return pseudo_gradient_at(grad, position(x, E::comparable(x), y), gate);
    }
  });
}

Tensor gate_backward(const Tensor& grad, const Tensor& bits, int64_t gate_, int64_t order) {
  const auto gate = static_cast<Gate>(gate_);
  if (takes_kernel(grad)) {
    return decode(RecordedGate{bits, {gate}, order}, grad, {true})[0];
  }
  return with_constant<kGates>(gate, [&](auto constant) {
    constexpr Gate gate = decltype(constant)::value;
    const RecordedBits recorded = {bits, planes(gate), order};
    const Code<CodeMask> code = {kFirstBit, kSecondBit};
    if constexpr (is_linear(gate)) {
      const auto at = weight_in<gate>(code);
      const Weight<TensorMask> weight = {recorded(at.open), recorded(at.tie), recorded(at.quarter)};
      return weighed<gate, E>(TensorValue(grad), weight).get(grad);
    } else {
      const auto at = position_in(code);
      const Position<TensorMask> position = {
          recorded(at.inside), recorded(at.below), recorded(at.above)};
      return pseudo_gradient_at(grad, position, gate);
    }
  });
}

namespace native {

Tensor clamp_mingrad_backward(
    const Tensor& grad, const Tensor& self, const Number& min, const Number& max) {
  check_has_bound(min, max);
  return linear_gradient<Gate::strict>(grad, self, in_dtype(min, self), in_dtype(max, self));
}

Tensor pseudo_gradient(
    const Tensor& grad,
    const Tensor& inside,
    const Tensor& below,
    const Tensor& above,
    int64_t gate_) {
  const auto gate = checked_enum<Gate>(gate_, kGates);
  TORCH_CHECK_VALUE(!is_linear(gate), "clampgrad: gate ", gate_, " is no pseudo-gradient");
  const Position<TensorMask> at = {as_mask(inside), as_mask(below), as_mask(above)};
  return with_constant<kGates>(gate, [&](auto gate) {
    return pushed<decltype(gate)::value, E>(TensorValue(grad), at).get(grad);
  });
}

} // namespace native
} // namespace clampgrad
