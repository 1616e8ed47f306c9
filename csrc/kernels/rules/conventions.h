#pragma once
// Which rules a convention takes: docs/adding_a_convention.md. The rules are in numbers.h, pairs.h
// and triples.h. A rule goes by the name of a convention; conventions may share one.

#include "base/convention.h"
#include "kernels/constant.h"

namespace clampgrad {

// ---- Numbers for bounds -------------------------------------------------------------------------

// A number is a constant, so least norm gives x nothing at a bound, as joint does. straight_through
// has no rule here: nothing is recorded for it.
constexpr Gradient number_rule(Gradient gradient) {
  const bool has_none = gradient == Gradient::straight_through;
  return has_none || gradient == Gradient::joint ? Gradient::min_norm : gradient;
}

// The rule for the bits of a forward, except for two Tensors. All pseudo-gradients share one, which
// records where x lies.
constexpr Gradient recorded_rule(Gradient gradient) {
  return is_pseudo(gradient) ? Gradient::with_grad : gradient;
}

// One bit: whether g passes. Two bits: how much of it, where a tie is shared, or where x lies.
constexpr int bits_per_element(Gradient number_rule) {
  return number_rule == Gradient::half || is_pseudo(number_rule) ? 2 : 1;
}

// ---- Two Tensors --------------------------------------------------------------------------------

// Sets of arguments, as bits.
constexpr int kSelf = 1, kOther = 2, kBoth = 3;

// Which arguments get a share at a tie, and which if the result is NaN.
struct PairRule {
  int tie, nan;
};

// `differentiated` is a set of arguments too.
CLAMPGRAD_HOST_DEVICE PairRule pair_rule(Extremum op, Gradient gradient, int differentiated) {
  switch (gradient) {
    case Gradient::min_norm:
      return {differentiated == kBoth ? kBoth : 0, 0};
    case Gradient::half:
      return {kBoth, 0};
    case Gradient::joint:
      return {kBoth, skips_nan(op) ? kSelf : kBoth};
    case Gradient::inclusive:
      return is_clamp(op) ? PairRule{kSelf, 0}
          : skips_nan(op) ? PairRule{kSelf, kSelf}
                          : PairRule{kBoth, kBoth};
    case Gradient::with_grad:
    case Gradient::restoring:
    case Gradient::straight_through:
      break;
  }
  return {kSelf, 0}; // a pseudo-gradient: what is at the bound belongs to self
}

// The rule that reads the bits. min_norm means equal shares for the arguments whose bits are set.
constexpr Gradient pair_share_rule(Gradient gradient) {
  return is_pseudo(gradient) ? gradient : Gradient::min_norm;
}

// Whether a NaN result gives both arguments all of g. The bits encode this as no share for either,
// so under such a rule at least one argument must have a share at a tie.
CLAMPGRAD_HOST_DEVICE bool nan_to_both(Extremum op, Gradient gradient) {
  return pair_rule(op, gradient, kBoth).nan == kBoth;
}

// ---- Three Tensors ------------------------------------------------------------------------------

constexpr int kX = 1, kLo = 2, kHi = 4, kAll = 7;

// The rule that reads the bits. Under inclusive, shares are equal, as under min_norm.
constexpr Gradient triple_share_rule(Gradient gradient) {
  return gradient == Gradient::inclusive ? Gradient::min_norm : gradient;
}

// Whether a number and a Tensor for bounds take a rule of three, in which the number is a Tensor
// that is a constant. The other conventions clamp by one bound after the other, of which the rule
// of three is the outcome under half.
inline bool mixed_at_once(Gradient gradient) {
  return gradient == Gradient::min_norm || gradient == Gradient::half || is_pseudo(gradient);
}

constexpr Gradient own_rule(Gradient gradient) {
  return gradient;
}

// ---- As template arguments ----------------------------------------------------------------------

// Forward mode needs a gradient that is a linear function of the incoming one.
constexpr bool is_linear(Gradient gradient) {
  return gradient != Gradient::with_grad && gradient != Gradient::restoring;
}

// f(Constant<rule>(), Constant<maximize>()), by a function above. Exact rules ignore maximize.
template <Gradient (*rule_of)(Gradient), typename F>
auto with_rule(Convention c, const F& f) {
  return with_constant<kGradients>(c.gradient, [&](auto gradient) {
    constexpr Gradient rule = rule_of(decltype(gradient)::value);
    if constexpr (is_linear(rule)) {
      return f(Constant<rule>(), Constant<false>());
    } else {
      return with_constant<2>(
          c.maximize, [&](auto maximize) { return f(Constant<rule>(), maximize); });
    }
  });
}

} // namespace clampgrad
