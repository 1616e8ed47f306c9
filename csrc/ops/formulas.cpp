// What the arguments of an operator get of a gradient, composed of ATen operators or by the fused
// kernels.

#include "ops/formulas.h"

#include "Kernels.h"
#include "Operators.h"
#include "base/bounds.h"
#include "ops/composed.h"

#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/clamp.h>

namespace clampgrad {

namespace {

using E = TensorElement;
using at::Tensor;
using composed::compared;
using composed::Compared;
using composed::NumberMasks;
using composed::PairMasks;
using composed::Position;
using composed::PseudoMasks;
using composed::Triple;
using composed::TripleMasks;

// What each of n arguments gets of a gradient. Forward mode is the transpose: the tangent of the
// result is the sum of what each argument gets, of its own tangent.
template <size_t n>
using Shares = std::function<std::array<TensorValue, n>(const Tensor& grad)>;

// Arguments are compared in the dtype to which they promote, which the gradient has.
Compared<TensorValue> compared_in_dtype(const Tensor& t) {
  return compared<E>(TensorValue([t](const Tensor& like) { return t.to(like.scalar_type()); }));
}

TensorValue pseudo_share_of(const Tensor& grad, const Position<TensorMask>& at, Convention c) {
  if (c.gradient == Gradient::straight_through) {
    return grad;
  }
  return LazyTensor::Compute([=](const Tensor& g) { // an operator, whose tangent raises
    const auto inside = at.inside.get(g), below = at.below.get(g), above = at.above.get(g);
    return clampgrad::_pseudo_gradient(g, inside, below, above, name_of(c.gradient), c.maximize);
  });
}

// f(Constant<rule>(), position), for a pseudo-gradient that is not linear.
template <typename F>
Tensor with_pseudo_gradient(
    const Tensor& inside, const Tensor& below, const Tensor& above, Convention c, const F& f) {
  const auto mask = [](const Tensor& t) { return TensorMask([t](const Tensor&) { return t; }); };
  const Position<TensorMask> at = {mask(inside), mask(below), mask(above)};
  const auto descent =
      c.maximize ? composed::in_descent<true>(at) : composed::in_descent<false>(at);
  return c.gradient == Gradient::with_grad ? f(Constant<Gradient::with_grad>(), descent)
                                           : f(Constant<Gradient::restoring>(), descent);
}

// ---- One argument -------------------------------------------------------------------------------

template <Gradient rule>
Shares<1> shares_by(const NumberMasks<TensorMask>& masks) {
  return [=](const Tensor& grad) -> std::array<TensorValue, 1> {
    return {composed::number_share<rule, E>(TensorValue(grad), masks)};
  };
}

Shares<1> shares_by(const Position<TensorMask>& at, Convention c) {
  return [=](const Tensor& grad) -> std::array<TensorValue, 1> {
    return {pseudo_share_of(grad, at, c)};
  };
}

Shares<1> shares(const NumberShares& of) {
  const auto& self = of.args[0];
  const auto &min = of.min, &max = of.max;
  const auto c = of.convention;
  const TensorValue x = self;
  const auto everywhere = E::comparable(x);
  if (is_pseudo(c.gradient)) {
    const TensorValue y = at::clamp(self.detach(), min, max); // only compared with
    return shares_by(composed::position(x, everywhere, y), c);
  }
  return with_constant<kGradients>(number_rule(c.gradient), [&](auto constant) {
    constexpr Gradient rule = decltype(constant)::value;
    const composed::Bounds<TensorValue> bounds = {min.value_or(0), max.value_or(0)};
    return with_bounds(min.has_value(), max.has_value(), [&](auto lo, auto hi) {
      return shares_by<rule>(composed::number_masks<rule, decltype(lo)::value, decltype(hi)::value>(
          x, everywhere, bounds));
    });
  });
}

Shares<1> shares(const SavedNumber& of) {
  const auto c = of.call.convention;
  return with_rule<number_rule>(c, [&](auto constant, auto) {
    constexpr Gradient rule = decltype(constant)::value;
    const SavedBits in = {of.bits, bits_per_element(rule), of.dim_order};
    const composed::NumberBits<TruthTable> bits = {kFirstBit, kSecondBit};
    if constexpr (is_pseudo(rule)) {
      const auto at = composed::position_in(bits);
      return shares_by(Position<TensorMask>{in(at.inside), in(at.below), in(at.above)}, c);
    } else {
      const auto at = composed::masks_in<rule>(bits);
      return shares_by<rule>(NumberMasks<TensorMask>{in(at.open), in(at.tie), in(at.quarter)});
    }
  });
}

// ---- Two arguments ------------------------------------------------------------------------------

Shares<2> shares_by(const PairMasks<TensorMask>& masks, Extremum op, Convention c) {
  return [=](const Tensor& grad) -> std::array<TensorValue, 2> {
    const auto of = composed::pair_share<E>(TensorValue(grad), masks);
    if (is_pseudo(c.gradient)) {
      const auto at = composed::pair_position(masks.self, masks.other, takes_larger(op));
      return {pseudo_share_of(grad, at, c), of.other};
    }
    return {of.self, of.other};
  };
}

Shares<2> pair_of(
    const Tensor& self_, const Tensor& other_, Extremum op, Convention c, int64_t differentiated) {
  const auto self = compared_in_dtype(self_), other = compared_in_dtype(other_);
  const auto rule = pair_rule(op, c.gradient, static_cast<int>(differentiated));
  const auto masks = with_constant<2>(takes_larger(op), [&](auto larger) {
    return with_constant<2>(skips_nan(op), [&](auto skips) {
      return composed::pair_masks<decltype(larger)::value, decltype(skips)::value>(
                 self, other, rule)
          .shares;
    });
  });
  return shares_by(masks, op, c);
}

Shares<2> shares(const ExtremumShares& of) {
  return pair_of(of.args[0], of.args[1], of.op, of.convention, of.differentiated);
}

Shares<2> shares(const SavedPair& of) {
  const SavedBits in = {of.bits, 2, of.dim_order};
  const auto [op, c] = of.call;
  const auto at = nan_to_both(op, c.gradient)
      ? composed::pair_masks_in<true>(kFirstBit, kSecondBit)
      : composed::pair_masks_in<false>(kFirstBit, kSecondBit);
  const auto halved = is_pseudo(c.gradient) ? TruthTable() : at.halved; // it records no tie
  return shares_by(PairMasks<TensorMask>{in(at.self), in(at.other), in(halved)}, op, c);
}

// ---- Three arguments ----------------------------------------------------------------------------

Shares<3> shares_by(const TripleMasks<TensorMask>& masks) {
  return [=](const Tensor& grad) -> std::array<TensorValue, 3> {
    const auto of = composed::triple_share<E>(TensorValue(grad), masks);
    return {of.x, of.lo, of.hi};
  };
}

Shares<3> shares_by(const PseudoMasks<TensorMask>& masks, Convention c) {
  return [=](const Tensor& grad) -> std::array<TensorValue, 3> {
    const auto bounds = composed::bounds_share<E>(TensorValue(grad), masks);
    return {pseudo_share_of(grad, masks.x, c), bounds.self, bounds.other};
  };
}

Shares<3> shares(const ClampShares& of) {
  const auto &self = of.args[0], &min = of.args[1], &max = of.args[2];
  const auto c = of.convention;
  const auto differentiated = static_cast<int>(of.differentiated);
  if (!min.defined() || !max.defined()) {
    const bool is_min = min.defined();
    // Bits of the two arguments that are there.
    const auto bits =
        (differentiated & kX) | (is_min ? differentiated & kLo : (differentiated & kHi) >> 1);
    const auto op = is_min ? Extremum::clamp_min : Extremum::clamp_max;
    const auto pair = pair_of(self, is_min ? min : max, op, c, bits);
    return [=](const Tensor& grad) -> std::array<TensorValue, 3> {
      const auto [of_self, of_bound] = pair(grad);
      return is_min ? std::array<TensorValue, 3>{of_self, of_bound, {}}
                    : std::array<TensorValue, 3>{of_self, {}, of_bound};
    };
  }
  const auto x = compared_in_dtype(self), lo = compared_in_dtype(min), hi = compared_in_dtype(max);
  return with_constant<kGradients>(c.gradient, [&](auto gradient) {
    constexpr Gradient rule = triple_rule(decltype(gradient)::value);
    if constexpr (is_pseudo(rule)) {
      const auto y = compared<E>(TensorValue([=](const Tensor& like) { // only compared with
        const auto dtype = like.scalar_type();
        return at::clamp(self.detach().to(dtype), min.detach().to(dtype), max.detach().to(dtype));
      }));
      return shares_by(composed::pseudo_masks(x, lo, hi, y, differentiated), c);
    } else {
      return shares_by(composed::triple_masks<rule>(x, lo, hi, differentiated));
    }
  });
}

Shares<3> shares(const SavedTriple& of) {
  const SavedBits in = {of.bits, 3, of.dim_order};
  const Triple<TruthTable> bits = {kFirstBit, kSecondBit, kThirdBit};
  const auto c = of.call.convention;
  if (is_pseudo(c.gradient)) {
    const auto [x, lo, hi, halved] = composed::pseudo_masks_in(bits);
    return shares_by(
        PseudoMasks<TensorMask>{
            {in(x.inside), in(x.below), in(x.above)}, in(lo), in(hi), in(halved)},
        c);
  }
  return with_constant<kGradients>(share_rule(c.gradient), [&](auto gradient) {
    const auto [x, lo, hi, two, three, nested, unread] =
        composed::triple_masks_in<decltype(gradient)::value>(bits);
    return shares_by(
        TripleMasks<TensorMask>{in(x), in(lo), in(hi), in(two), in(three), in(nested)});
  });
}

// ---- Of any -------------------------------------------------------------------------------------

template <typename Of>
constexpr bool reads_bits = false;
template <typename Call>
constexpr bool reads_bits<Saved<Call>> = true;

template <size_t n>
at::ScalarType promoted_type(const std::array<Tensor, n>& args) {
  return at::native::result_type(at::TensorList(args.data(), n));
}

} // namespace

template <typename Of, size_t n>
std::array<Tensor, n> gradients(
    const Of& of, const Tensor& grad, const std::array<bool, n>& wanted) {
  std::array<Tensor, n> result;
  if (!grad.defined()) {
    return result;
  }
  if constexpr (reads_bits<Of>) {
    if (is_fusable_backward(grad, of.bits)) {
      return fused_backward(of, grad, wanted);
    }
  }
  auto like = grad;
  if constexpr (!reads_bits<Of>) {
    like = grad.to(promoted_type(of.args)); // in place, the result may be of a narrower dtype
  }
  const auto values = shares(of)(like);
  for (size_t i = 0; i < n; ++i) {
    if (wanted[i]) {
      result[i] = values[i].get(like);
      if constexpr (!reads_bits<Of>) {
        if (result[i].dim() != 0) { // sum_to would sum a scalar too, and make +0 of -0
          result[i] = at::sum_to(result[i], of.args[i].sym_sizes());
        }
      }
    }
  }
  return result;
}

template <typename Of, size_t n>
Tensor tangent(const Of& of, std::array<Tensor, n> tangents) {
  const auto dtype = promoted_type(of.args);
  const auto shares_of = shares(of);
  Tensor result;
  for (size_t i = 0; i < n; ++i) {
    if (tangents[i].defined()) {
      const auto tangent = if_linear(tangents[i].to(dtype), of.convention);
      const auto share = shares_of(tangent)[i].get(tangent);
      result = result.defined() ? result + share : share;
    }
  }
  return result;
}

// For n arguments, from what the operator was called with and from the bits.
#define CLAMPGRAD_FORMULAS(n, Of, SavedOf)                                                        \
  template Tensor tangent(const Of&, std::array<Tensor, n>);                                      \
  template std::array<Tensor, n> gradients(const Of&, const Tensor&, const std::array<bool, n>&); \
  template std::array<Tensor, n> gradients(                                                       \
      const SavedOf&, const Tensor&, const std::array<bool, n>&);
CLAMPGRAD_FORMULAS(1, NumberShares, SavedNumber)
CLAMPGRAD_FORMULAS(2, ExtremumShares, SavedPair)
CLAMPGRAD_FORMULAS(3, ClampShares, SavedTriple)
#undef CLAMPGRAD_FORMULAS

// ---- Pseudo-gradients ---------------------------------------------------------------------------

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

namespace native {

Tensor clamp_mingrad_backward(
    const Tensor& grad, const Tensor& self, const Number& min, const Number& max) {
  TORCH_CHECK(min || max, "At least one of 'min' or 'max' must not be None"); // as torch.clamp
  const Convention least_norm = {Gradient::min_norm, false};
  const NumberShares of = {{self}, in_dtype(min, self), in_dtype(max, self), least_norm};
  return shares(of)(grad)[0].get(grad);
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
