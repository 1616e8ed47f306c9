#pragma once
// What each convention makes of arguments that are Tensors: the rules that both paths follow.

#include "kernels/shares.h"
#include "ops/convention.h"

namespace clampgrad {

// Operators of two Tensors, by what PyTorch did with their ties: clamp_min and clamp_max, maximum
// and minimum, fmax and fmin.
enum class Kind { clamp, extremum, nan_skipping_extremum };

enum class Tie { none, to_self, shared };
enum class NaN { none, to_self, to_both };

struct PairRule {
  Tie tie;
  NaN nan;
};

// `differentiated` has bit 0 for self and bit 1 for the other argument.
PairRule pair_rule(Kind kind, Gradient gradient, int64_t differentiated);

constexpr Kind kind_of(Extremum op) {
  return op == Extremum::fmax || op == Extremum::fmin ? Kind::nan_skipping_extremum
                                                      : Kind::extremum;
}
constexpr bool greater_wins(Extremum op) {
  return op == Extremum::maximum || op == Extremum::fmax;
}

// The same as codes and as a way to decode them.
PairCodes pair_codes(PairRule rule);
Sharing pair_sharing(Convention convention, PairRule rule);
Rule triple_rule(Gradient gradient);
Sharing triple_sharing(Convention convention);

} // namespace clampgrad
