#pragma once
// What each convention makes of arguments that are Tensors: the rules that both paths follow.

#include "base/convention.h"
#include "base/sharing_codes.h"

namespace clampgrad {

// Operators of two Tensors, by what PyTorch did with their ties: clamp_min and clamp_max, maximum
// and minimum, fmax and fmin.
enum class PairKind { clamp, extremum, nan_skipping_extremum };

// Who gets a share of a tie, and of a NaN. `differentiated` has bit 0 for self and bit 1 for the
// other argument.
PairCodes pair_codes(PairKind kind, Gradient gradient, int64_t differentiated);

constexpr PairKind kind_of(Extremum op) {
  return op == Extremum::fmax || op == Extremum::fmin ? PairKind::nan_skipping_extremum
                                                      : PairKind::extremum;
}
constexpr bool greater_wins(Extremum op) {
  return op == Extremum::maximum || op == Extremum::fmax;
}

// How the shares are decoded.
Sharing pair_sharing(Convention convention, PairCodes codes);
TripleRule triple_rule(Gradient gradient);
Sharing triple_sharing(Convention convention);

} // namespace clampgrad
