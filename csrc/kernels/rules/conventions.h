#pragma once
// Which rules a convention takes: docs/adding_a_convention.md. The rules are in numbers.h, pairs.h
// and triples.h. A rule goes by the name of a convention; conventions may share one.

#include "base/convention.h"
#include "kernels/constant.h"

namespace clampgrad {

// The rule of a convention for n arguments: x alone where the bounds are numbers, else two or three
// Tensors. With numbers for bounds, which are constants, joint is the rule of least norm. With two
// Tensors, all exact conventions read the bits alike; pair_rule says how they differ.
constexpr Gradient rule_of(Gradient gradient, size_t n) {
  const bool shares = n == 1 ? gradient == Gradient::joint : n == 2 && !is_pseudo(gradient);
  return shares ? Gradient::min_norm : gradient;
}

// All pseudo-gradients record the same: where x lies.
constexpr Gradient recorded_rule(Gradient rule) {
  return is_pseudo(rule) ? Gradient::with_grad : rule;
}

// A bit for each Tensor, whether it gets a share. For numbers, one bit: whether g passes; or two:
// how much of it, where a tie is shared, or where x lies.
constexpr int bits_per_element(Gradient gradient, size_t n) {
  const auto rule = rule_of(gradient, n);
  return n > 1 ? n : rule == Gradient::half || is_pseudo(rule) ? 2 : 1;
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

// Whether both arguments get all of g where the result is NaN. The bits say so by a share for
// neither, so under such a rule a tie must give a share to at least one.
CLAMPGRAD_HOST_DEVICE bool nan_to_both(Extremum op, Gradient gradient) {
  return pair_rule(op, gradient, /*differentiated=*/0).nan == kBoth;
}

// ---- Three Tensors ------------------------------------------------------------------------------

constexpr int kX = 1, kLo = 2, kHi = 4, kAll = 7;

// Whether, between a number and a Tensor, the number is treated as a constant Tensor. Otherwise x
// is clamped by one bound and then by the other; under half, both give the same.
inline bool mixed_at_once(Gradient gradient) {
  return gradient == Gradient::min_norm || gradient == Gradient::half || is_pseudo(gradient);
}

// ---- As template arguments ----------------------------------------------------------------------

// Forward mode needs a gradient that is a linear function of the incoming one.
constexpr bool is_linear(Gradient gradient) {
  return gradient != Gradient::with_grad && gradient != Gradient::restoring;
}

// What a forward and its backward have in common, so that the one reads what the other records.
// `variant`: the loss is maximised, or a NaN result gives both of two Tensors all of g.
template <size_t arguments, Gradient rule, bool variant>
struct Rule {
  static constexpr size_t n = arguments;
  static constexpr Gradient share = rule, recorded = recorded_rule(rule);
  static constexpr int bits = bits_per_element(rule, n);
  static constexpr bool maximize = variant && is_pseudo(rule);
};

// f(Rule<n, ...>()). Two Tensors have an `op`.
template <size_t n, typename F>
auto with_rule(Convention c, const F& f, Extremum op = {}) {
  return with_constant<kGradients>(c.gradient, [&](auto gradient) {
    constexpr Gradient rule = rule_of(decltype(gradient)::value, n);
    constexpr bool of_pair = n == 2 && !is_pseudo(rule);
    if constexpr (of_pair || !is_linear(rule)) {
      const bool variant = of_pair ? nan_to_both(op, c.gradient) : c.maximize;
      return with_constant<2>(
          variant, [&](auto is) { return f(Rule<n, rule, decltype(is)::value>()); });
    } else {
      return f(Rule<n, rule, false>());
    }
  });
}

} // namespace clampgrad
