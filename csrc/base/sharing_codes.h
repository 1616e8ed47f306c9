#pragma once
// Who gets which share of a gradient where arguments are Tensors: what one call is asked for, and
// what it records: a bit per argument, set where it gets a share (see Note [Bit planes]). Those
// that are set share equally, except where a rule says otherwise. The rules are in rules/shares.h.

#include "base/gate.h"

namespace clampgrad {

// What the shares of one call are; the arguments of the kernels, and part of saved graphs.
enum class Sharing : int64_t {
  equal = 0, // each of n gets 1/n
  nan_to_both = 1, // two arguments: no bit set means NaN, and each gets all
  nested = 2, // three: all bits set means 1/4, 1/4, 1/2 (half)
  nan_to_ends = 3, // three: all bits set means that x and hi get all (joint, x NaN)
  // Pseudo-gradients: x by its position, the bounds as in `equal`.
  with_grad = 4,
  with_grad_maximize = 5,
  restoring = 6,
  restoring_maximize = 7,
  straight_through = 8,
};
constexpr int64_t kSharings = 9;

constexpr bool is_pseudo(Sharing sharing) {
  return sharing >= Sharing::with_grad;
}

// Two arguments: codes, and those of the cases that conventions disagree on.
constexpr int kSelf = 1, kOther = 2, kBoth = 3;
struct PairCodes {
  int tie, nan;
};

// Three arguments. The codes of the pseudo-gradients say where x lies, seen from the result, and
// which bounds get a share besides: 0 NaN; 1 inside; 2 below, lo; 3 below, hi; 4 below, both;
// 5 below, none; 6 above, hi.
constexpr int kX = 1, kLo = 2, kHi = 4, kAll = 7;

enum class TripleRule : int64_t { min_norm = 0, inclusive = 1, joint = 2, half = 3, pseudo = 4 };
constexpr int64_t kTripleRules = 5;

} // namespace clampgrad
