// The shares of arguments, composed of ATen operators or computed by the fused kernels.

#include "ops/formulas.h"

#include "Kernels.h"
#include "base/messages.h"
#include "ops/composed.h"
#include "ops/front_doors.h"
#include "ops/record.h"

#include <ATen/TracerMode.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>

namespace clampgrad {

namespace {

using E = TensorElement;
using at::Tensor;
using composed::Comparand;
using composed::make_comparand;

// The shares of n arguments, as a function of g. Forward mode uses the same function: each
// argument's tangent is passed in as g, and the shares that the arguments get of their own tangents
// are added.
template <size_t n>
using Shares = std::function<std::array<TensorValue, n>(const Tensor& grad)>;

// Arguments are compared in the dtype to which they promote, which is the gradient's. Beside a
// Tensor on a GPU, torch takes a 0-dim one on the CPU, but not in logical_and. It goes there as a
// number, which waits for nothing and may be captured in a graph. A copy would wait for the GPU.
Comparand<TensorValue> make_comparand_in_dtype(const Tensor& t) {
  return make_comparand<E>(TensorValue([t](const Tensor& like) {
    const auto value = cast(t, like.scalar_type());
    if (t.dim() != 0 || like.is_cpu()) {
      return value;
    }
    return t.is_cpu() && is_plain(t) ? at::scalar_tensor(value.item(), like.options())
                                     : value.to(like.device());
  }));
}

// Note [A result is enough]
// ~~~~~~~~~~~~~~~~~~~~~~~~~
// Compiled code usually keeps the result of a forward for backward, because the next operator needs
// it, but not its inputs. So when a compiler records the gradient, masks are computed from the
// result y, and save at most the mask `x == y` besides: x lies strictly between bounds exactly
// where y does. y is computed again here, by the operator of the forward, because the tensor that
// the forward returned may have changed in place; compilers compute nothing twice. Where Inductor
// would not round y, because a bound is a symbol (is_left_unrounded) or a Tensor, x is compared.
bool compiler_keeps_result() {
  return is_functionalizing() && !is_in_transform();
}

// Returns the result in place of self, if only self is differentiated and the result is enough for
// the convention.
template <typename Source, typename Op>
Tensor choose_result_or_input(const Source& source, const Op& op) {
  return compiler_keeps_result() && kResultIsEnough[source.convention.gradient] &&
          source.differentiated_mask == kXBit &&
          !at::isReducedFloatingType(source.args[0].scalar_type())
      ? call_below_autograd(op)
      : source.args[0];
}

template <typename Rule, typename Masks>
Shares<Rule::kArguments> make_share_function(const Masks& masks) {
  return [=](const Tensor& grad) {
    std::array<TensorValue, Rule::kArguments> out;
    composed::compute_shares<Rule, E>(TensorValue(grad), masks, out);
    return out;
  };
}

template <size_t n>
Shares<n> make_shares(const SavedForBackward<n>& source) {
  const auto& call = source.call;
  const auto from_bits = [&](auto rule) {
    using Rule = decltype(rule);
    const SavedBits saved = {source.bits, Rule::kBits, source.dim_order};
    TensorMask bits[Rule::kBits];
    for (int b = 0; b < Rule::kBits; ++b) {
      bits[b] = {saved, kBitTables[b]};
    }
    return make_share_function<Rule>(composed::unpack_masks(rule, bits, selects_larger(call.op)));
  };
  return dispatch_rule<n>(call.convention, from_bits, call.op);
}

// ---- One argument -------------------------------------------------------------------------------

// Returns number_masks() of the result y: Note [A result is enough].
template <BitFormat format, bool has_lo, bool has_hi>
auto masks_of_result(
    const TensorValue& x, const composed::Bounds<TensorValue>& bounds, const TensorValue& y) {
  const TensorMask same = x == y;
  if constexpr (format == BitFormat::region) {
    const TensorMask outside = same ^ TensorMask(true);
    return composed::Region<TensorMask>{
        same,
        has_lo ? outside & (y == bounds.lo) : TensorMask(),
        has_hi ? outside & (y == bounds.hi) : TensorMask()};
  } else {
    auto masks = composed::number_masks<format, has_lo, has_hi>(y, E::comparable(y), bounds, y);
    constexpr NumberTies ties = kNumberTies[format];
    if constexpr (ties.at_bound != Share::none || ties.at_both_bounds != Share::none) {
      masks.pass = same & masks.pass;
    }
    return masks;
  }
}

bool is_less(const at::Scalar& a, const at::Scalar& b) {
  return !a.isSymbolic() && !b.isSymbolic() && a.toDouble() < b.toDouble();
}

Shares<1> make_shares(const ScalarClampArgs& source) {
  const auto& self = source.args[0];
  const auto &min = source.min, &max = source.max;
  const TensorValue x = self;
  const auto y = TensorValue([=](const Tensor&) { // only compared with
    const auto clamped = [&] { return at::clamp(self, min, max); }; // detach() would be an operator
    return compiler_keeps_result() ? call_below_autograd(clamped)
                                   : at::clamp(self.detach(), min, max);
  });
  const composed::Bounds<TensorValue> bounds = {min.value_or(0), max.value_or(0)};
  return dispatch_rule<1>(source.convention, [&](auto rule) {
    using Rule = decltype(rule);
    constexpr BitFormat format = Rule::kBitFormat;
    return dispatch_bounds(min.has_value(), max.has_value(), [&](auto lo, auto hi) {
      constexpr bool has_lo = decltype(lo)::value, has_hi = decltype(hi)::value;
      const bool from_result = compiler_keeps_result() &&
          !is_left_unrounded(min, self.scalar_type()) &&
          !is_left_unrounded(max, self.scalar_type()) &&
          (format != BitFormat::region || !(has_lo && has_hi) || is_less(*min, *max));
      return make_share_function<Rule>(
          from_result
              ? masks_of_result<format, has_lo, has_hi>(x, bounds, y)
              : composed::number_masks<format, has_lo, has_hi>(x, E::comparable(x), bounds, y));
    });
  });
}

// ---- Two arguments ------------------------------------------------------------------------------

Shares<2> make_pair_shares(
    const Tensor& self_,
    const Tensor& other_,
    PairOperator op,
    Convention c,
    int64_t differentiated_mask) {
  const auto self = make_comparand_in_dtype(self_), other = make_comparand_in_dtype(other_);
  const auto rule = pair_rule_of(op, c.gradient, static_cast<int>(differentiated_mask));
  const auto masks = composed::pair_masks(self, other, rule, selects_larger(op), skips_nan(op));
  return dispatch_rule<2>(
      c, [&](auto dispatched) { return make_share_function<decltype(dispatched)>(masks); }, op);
}

Shares<2> make_shares(const PairArgs& source) {
  const auto &self = source.args[0], &other = source.args[1];
  const auto x =
      choose_result_or_input(source, [&] { return aten_extremum(source.op, self, other); });
  return make_pair_shares(x, other, source.op, source.convention, source.differentiated_mask);
}

// ---- Three arguments ----------------------------------------------------------------------------

Shares<3> make_shares(const TensorClampArgs& source) {
  const auto &min = source.args[1], &max = source.args[2];
  const auto self =
      choose_result_or_input(source, [&] { return at::clamp(source.args[0], min, max); });
  const auto differentiated_mask = static_cast<int>(source.differentiated_mask);
  if (!min.defined() || !max.defined()) {
    const bool is_min = min.defined();
    // Has the bits of the two arguments that are there.
    const auto pair_mask = (differentiated_mask & kXBit) |
        (is_min ? differentiated_mask & kLoBit : (differentiated_mask & kHiBit) >> 1);
    const auto op = is_min ? PairOperator::clamp_min : PairOperator::clamp_max;
    const auto pair = make_pair_shares(self, is_min ? min : max, op, source.convention, pair_mask);
    return [=](const Tensor& grad) -> std::array<TensorValue, 3> {
      const auto [of_self, of_bound] = pair(grad);
      return is_min ? std::array<TensorValue, 3>{of_self, of_bound, {}}
                    : std::array<TensorValue, 3>{of_self, {}, of_bound};
    };
  }
  const auto x = make_comparand_in_dtype(self), lo = make_comparand_in_dtype(min),
             hi = make_comparand_in_dtype(max);
  const auto y = make_comparand<E>(TensorValue([=](const Tensor& like) { // only compared with
    const auto in = [&](const Tensor& t) { return cast(t.detach(), like.scalar_type()); };
    return at::clamp(in(self), in(min), in(max));
  }));
  return dispatch_rule<3>(source.convention, [&](auto rule) {
    using Rule = decltype(rule);
    auto masks = composed::triple_masks<Rule::kBitFormat>(x, lo, hi, y, differentiated_mask);
    if constexpr (Rule::kRule == RuleName::min_norm) {
      if (differentiated_mask == kXBit) { // between constants, the same in few operators
        masks.x = lt(lo, x) & lt(x, hi);
      }
    }
    return make_share_function<Rule>(masks);
  });
}

} // namespace

// ---- Any number of arguments --------------------------------------------------------------------

template <typename Source, size_t n>
std::array<Tensor, n> gradients(
    const Source& source, const Tensor& grad, const std::array<bool, n>& grad_input_mask) {
  constexpr bool reads_bits = std::is_same_v<Source, SavedForBackward<n>>;
  std::array<Tensor, n> result;
  if (!grad.defined()) {
    return result;
  }
  if constexpr (reads_bits) {
    if (is_fusable_backward(grad, source.bits)) {
      return fused_backward(source, grad, grad_input_mask);
    }
    TORCH_CHECK(!at::tracer::impl::is_dispatch_enabled(), messages::kNotTraced);
  }
  auto like = grad;
  if constexpr (!reads_bits) {
    // In place, grad's dtype may be narrower.
    like = cast(grad, at::native::result_type(source.args));
  }
  const auto values = make_shares(source)(like);
  for (size_t i = 0; i < n; ++i) {
    if (grad_input_mask[i]) {
      result[i] = values[i].get(like);
    }
  }
  return result;
}

template <typename Source, size_t n>
Tensor tangent(const Source& source, std::array<Tensor, n> tangents) {
  const auto dtype = at::native::result_type(source.args);
  const auto compute_tangent_shares = make_shares(source);
  // An argument without a tangent comes as zeros without memory, which add nothing to the others.
  // But under straight_through, the share of x has the shape of x alone.
  const auto carries_tangent = [](const Tensor& t) { return t.defined() && !t._is_zerotensor(); };
  const bool any = source.convention.gradient != Gradient::straight_through &&
      std::any_of(tangents.begin(), tangents.end(), carries_tangent);
  Tensor result;
  for (size_t i = 0; i < n; ++i) {
    if (any ? carries_tangent(tangents[i]) : tangents[i].defined()) {
      const auto t = check_linear(cast(tangents[i], dtype), source.convention.gradient);
      const auto share = compute_tangent_shares(t)[i].get(t);
      result = result.defined() ? result + share : share;
    }
  }
  return result;
}

// For n arguments, from the arguments of the operator and from the bits.
#define CLAMPGRAD_FORMULAS(n, Source)                            \
  template Tensor tangent(const Source&, std::array<Tensor, n>); \
  template std::array<Tensor, n> gradients(                      \
      const Source&, const Tensor&, const std::array<bool, n>&); \
  template std::array<Tensor, n> gradients(                      \
      const SavedForBackward<n>&, const Tensor&, const std::array<bool, n>&);
CLAMPGRAD_FORMULAS(1, ScalarClampArgs)
CLAMPGRAD_FORMULAS(2, PairArgs)
CLAMPGRAD_FORMULAS(3, TensorClampArgs)
#undef CLAMPGRAD_FORMULAS

Tensor check_linear(const Tensor& t, Gradient gradient) {
  TORCH_CHECK_NOT_IMPLEMENTED(is_linear(gradient), messages::kNotLinear);
  return t;
}

namespace native {

Tensor clamp_mingrad_backward(
    const Tensor& grad, const Tensor& self, const OptionalScalar& min, const OptionalScalar& max) {
  TORCH_CHECK(min || max, "At least one of 'min' or 'max' must not be None"); // as torch.clamp
  const Convention least_norm = {Gradient::min_norm, false};
  const ScalarClampArgs source = {
      {self}, round_to_dtype(min, self), round_to_dtype(max, self), least_norm};
  return make_shares(source)(grad)[0].get(grad);
}

} // namespace native
} // namespace clampgrad
