// The gradient of a clamp between numbers, composed of ATen operators.

#include "ops/formulas.h"

#include "Kernels.h"
#include "Operators.h"
#include "base/bounds.h"
#include "ops/composed.h"

#include <ATen/ops/clamp.h>

namespace clampgrad {

namespace {

using E = TensorElement;
using at::Tensor;
using composed::NumberMasks;
using composed::Position;

TensorMask as_mask(const Tensor& t) {
  return TensorMask([t](const Tensor&) { return t; });
}

template <Gradient rule>
Tensor linear_gradient(
    const Tensor& grad, const Tensor& self, const Number& min, const Number& max) {
  const composed::Bounds<TensorValue> bounds = {min.value_or(0), max.value_or(0)};
  const auto everywhere = E::comparable(self);
  return with_bounds(min.has_value(), max.has_value(), [&](auto has_lo, auto has_hi) {
    const auto at = composed::number_masks<rule, decltype(has_lo)::value, decltype(has_hi)::value>(
        TensorValue(self), everywhere, bounds);
    return composed::number_share<rule, E>(TensorValue(grad), at).get(grad);
  });
}

// f(Constant<rule>(), position), for a pseudo-gradient that is not linear.
template <typename F>
Tensor with_pseudo_gradient(
    const Tensor& inside, const Tensor& below, const Tensor& above, Convention c, const F& f) {
  const Position<TensorMask> at = {as_mask(inside), as_mask(below), as_mask(above)};
  const auto descent =
      c.maximize ? composed::in_descent<true>(at) : composed::in_descent<false>(at);
  return c.gradient == Gradient::with_grad ? f(Constant<Gradient::with_grad>(), descent)
                                           : f(Constant<Gradient::restoring>(), descent);
}

} // namespace

Tensor pseudo_gradient_backward(
    const Tensor& grad,
    const Tensor& grad_output,
    const Tensor& inside,
    const Tensor& below,
    const Tensor& above,
    Convention c) {
  return with_pseudo_gradient(inside, below, above, c, [&](auto rule, const auto& at) {
    const auto open = composed::passes<decltype(rule)::value, E>(TensorValue(grad_output), at);
    return select(open, TensorValue(grad), TensorValue()).get(grad);
  });
}

Tensor if_linear(const Tensor& tangent, Convention c) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      is_linear(c.gradient),
      "clampgrad: forward mode is not defined for the gradients 'with_grad' and 'restoring', which "
      "are not linear in the incoming gradient");
  return tangent;
}

Tensor clamp_backward(
    const Tensor& grad, const Tensor& self, const Number& min, const Number& max, Convention c) {
  return with_rule<number_rule>(c, [&](auto constant, auto) {
    constexpr Gradient rule = decltype(constant)::value;
    if constexpr (is_pseudo(rule)) {
      const TensorValue x = self, y = at::clamp(self.detach(), min, max); // only compared with
      return pseudo_gradient_at(grad, composed::position(x, E::comparable(x), y), c);
    } else {
      return linear_gradient<rule>(grad, self, min, max);
    }
  });
}

Tensor composed_backward(const Tensor& grad, const Saved<NumberBackward>& of) {
  const auto c = of.call.convention;
  return with_rule<number_rule>(c, [&](auto constant, auto) {
    constexpr Gradient rule = decltype(constant)::value;
    const SavedBits in = {of.bits, bits_per_element(rule), of.dim_order};
    const composed::NumberBits<TruthTable> bits = {kFirstBit, kSecondBit};
    if constexpr (is_pseudo(rule)) {
      const auto at = composed::position_in(bits);
      const Position<TensorMask> position = {in(at.inside), in(at.below), in(at.above)};
      return pseudo_gradient_at(grad, position, c);
    } else {
      const auto at = composed::masks_in<rule>(bits);
      const NumberMasks<TensorMask> masks = {in(at.open), in(at.tie), in(at.quarter)};
      return composed::number_share<rule, E>(TensorValue(grad), masks).get(grad);
    }
  });
}

namespace native {

Tensor clamp_mingrad_backward(
    const Tensor& grad, const Tensor& self, const Number& min, const Number& max) {
  check_has_bound(min, max);
  return linear_gradient<Gradient::min_norm>(grad, self, in_dtype(min, self), in_dtype(max, self));
}

Tensor pseudo_gradient(
    const Tensor& grad,
    const Tensor& inside,
    const Tensor& below,
    const Tensor& above,
    std::string_view gradient,
    bool maximize) {
  const auto c = parse_convention(gradient, maximize);
  TORCH_CHECK_VALUE(!is_linear(c.gradient), "clampgrad: ", gradient, " is no pseudo-gradient");
  return with_pseudo_gradient(inside, below, above, c, [&](auto rule, const auto& at) {
    return composed::pseudo_share<decltype(rule)::value, E>(TensorValue(grad), at).get(grad);
  });
}

} // namespace native
} // namespace clampgrad
