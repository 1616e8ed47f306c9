#pragma once
// What each convention makes of arguments that are Tensors: the rules that both paths follow.

#include "kernels/shares.h"
#include "ops/convention.h"

namespace clampgrad {

// Operators of two Tensors, by what PyTorch did with their ties: clamp_min and clamp_max, maximum
// and minimum, fmax and fmin.
enum class Kind { clamp, extremum, nan_skipping_extremum };

// Who gets a share of a tie, and of a NaN. `differentiated` has bit 0 for self and bit 1 for the
// other argument.
PairCodes pair_codes(Kind kind, Gradient gradient, int64_t differentiated);

constexpr Kind kind_of(Extremum op) {
  return op == Extremum::fmax || op == Extremum::fmin ? Kind::nan_skipping_extremum
                                                      : Kind::extremum;
}
constexpr bool greater_wins(Extremum op) {
  return op == Extremum::maximum || op == Extremum::fmax;
}

// How the shares are decoded.
Sharing pair_sharing(Convention convention, PairCodes codes);
Rule triple_rule(Gradient gradient);
Sharing triple_sharing(Convention convention);

} // namespace clampgrad
