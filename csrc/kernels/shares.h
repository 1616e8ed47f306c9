#pragma once
// Who gets which share of a gradient where arguments are Tensors, element by element. Free of ATen:
// CPU and CUDA share it. The rules are those of docs/conventions.md.
//
// As for a gate (kernels/gate.h), the forward encodes what the backward needs: a bit per argument,
// set where it gets a share. Those that are set share equally, but where a rule says otherwise.

#include "kernels/gate.h"

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

// Comparisons are false where one side is NaN, however T compares.
template <typename T>
struct Compared {
  T key;
  bool number;
};
template <typename T>
CLAMPGRAD_HOST_DEVICE bool lt(const Compared<T>& a, const Compared<T>& b) {
  return a.number & b.number & (a.key < b.key);
}
template <typename T>
CLAMPGRAD_HOST_DEVICE bool le(const Compared<T>& a, const Compared<T>& b) {
  return a.number & b.number & (a.key <= b.key);
}
template <typename T>
CLAMPGRAD_HOST_DEVICE bool eq(const Compared<T>& a, const Compared<T>& b) {
  return a.number & b.number & (a.key == b.key);
}

// ---- Two arguments ------------------------------------------------------------------------------

constexpr int kSelf = 1, kOther = 2, kBoth = 3;

// Codes of the cases that conventions disagree on.
struct PairCodes {
  int tie, nan;
};

struct Choice {
  int code;
  bool takes_self; // the value of the result is self's
};

// maximum where greater_wins, else minimum; fmax and fmin where a NaN loses.
template <bool greater_wins, bool nan_loses, typename T>
CLAMPGRAD_HOST_DEVICE Choice
encode_pair(const Compared<T>& self, const Compared<T>& other, const PairCodes& codes) {
  bool wins = greater_wins ? lt(other, self) : lt(self, other);
  bool loses = greater_wins ? lt(self, other) : lt(other, self);
  const bool tie = eq(self, other);
  bool nan = !(self.number & other.number);
  if constexpr (nan_loses) {
    wins |= self.number & !other.number;
    loses |= other.number & !self.number;
    nan = !(self.number | other.number);
  }
  const int code =
      (wins ? kSelf : 0) | (loses ? kOther : 0) | (tie ? codes.tie : 0) | (nan ? codes.nan : 0);
  return {code, nan_loses ? !loses : wins || tie || !self.number};
}

// ---- Three arguments ----------------------------------------------------------------------------

constexpr int kX = 1, kLo = 2, kHi = 4, kAll = 7;

// Codes of the pseudo-gradients: where x lies, and which bounds get the rest.
namespace beyond {
constexpr int nan = 0, inside = 1, below_lo = 2, below_hi = 3, below_both = 4, below_none = 5,
              above = 6;
}

enum class Rule : int64_t { min_norm = 0, inclusive = 1, joint = 2, half = 3, pseudo = 4 };

CLAMPGRAD_HOST_DEVICE int mask(bool x, bool lo, bool hi) {
  return (x ? kX : 0) | (lo ? kLo : 0) | (hi ? kHi : 0);
}

// torch.clamp with Tensors: hi wins where lo > hi, and a NaN among them is the result. `x`, `lo`
// and `hi` decide which of the values is returned.
template <typename V, typename T>
CLAMPGRAD_HOST_DEVICE V clamp_value(
    V of_x, V of_lo, V of_hi, const Compared<T>& x, const Compared<T>& lo, const Compared<T>& hi) {
  const bool raised = lt(x, lo), lowered = raised ? lt(hi, lo) : lt(hi, x);
  const V value = lowered ? of_hi : raised ? of_lo : of_x;
  return !x.number ? of_x : !lo.number ? of_lo : !hi.number ? of_hi : value;
}

// `differentiated` has the bits of the arguments that are being differentiated.
template <Rule rule, typename T>
CLAMPGRAD_HOST_DEVICE int encode_triple(
    const Compared<T>& x, const Compared<T>& lo, const Compared<T>& hi, int differentiated) {
  if constexpr (rule == Rule::inclusive) {
    return mask(le(lo, x) & le(x, hi), lt(x, lo) & lt(lo, hi), lt(hi, x) | lt(hi, lo));
  } else if constexpr (rule == Rule::joint) {
    const bool ordered = lt(lo, hi);
    const bool tie_lo = eq(x, lo) & ordered, tie_hi = eq(x, hi) & ordered;
    return mask(
               !(lt(x, lo) | lt(hi, x)),
               (lt(x, lo) & le(lo, hi)) | tie_lo,
               (lt(hi, x) & le(lo, hi)) | lt(hi, lo) | tie_hi) |
        (!x.number & lt(hi, lo) ? kAll : 0);
  } else if constexpr (rule == Rule::half) {
    const bool number = x.number & lo.number & hi.number;
    const bool raised = lt(x, lo), shut = raised ? lt(hi, lo) : lt(hi, x);
    const bool tie = raised ? eq(lo, hi) : eq(x, hi);
    const int code = mask(!shut & !raised, !shut & le(x, lo), shut | tie);
    return number ? code : 0;
  } else {
    const bool number = x.number & lo.number & hi.number;
    const int active =
        mask(le(lo, x) & le(x, hi), le(x, lo) & le(lo, hi), number & (le(hi, x) | le(hi, lo)));
    if constexpr (rule == Rule::min_norm) {
      const bool alone = (active & (active - 1)) == 0;
      // A constant among several active inputs makes 0 a subgradient.
      return alone | ((active & ~differentiated) == 0) ? active : 0;
    } else {
      const bool both = (active & (kLo | kHi)) == (kLo | kHi);
      const bool shared = (differentiated & (kLo | kHi)) == (kLo | kHi);
      const int below = both ? (shared ? beyond::below_both : beyond::below_none)
          : (active & kLo)   ? beyond::below_lo
                             : beyond::below_hi;
      const bool is_above = lt(hi, x);
      const bool inside = (active & kX) != 0 || ((active & kHi) != 0 && eq(x, hi));
      return !number ? beyond::nan : inside ? beyond::inside : is_above ? beyond::above : below;
    }
  }
}

// ---- The backward -------------------------------------------------------------------------------

// The pseudo-gradient of x where it lies below (or above) the result.
template <Sharing sharing, typename T>
CLAMPGRAD_HOST_DEVICE T decode_beyond(T g, bool is_below) {
  constexpr Gate gate = sharing == Sharing::with_grad ? Gate::with_grad
      : sharing == Sharing::with_grad_maximize        ? Gate::with_grad_maximize
      : sharing == Sharing::restoring                 ? Gate::restoring
                                                      : Gate::restoring_maximize;
  if constexpr (sharing == Sharing::straight_through) {
    return g;
  } else {
    return decode<gate>(g, is_below ? position::below : position::above);
  }
}

// `clamps_from_below`: the other argument is a lower bound (pseudo-gradients only).
template <Sharing sharing, typename T>
CLAMPGRAD_HOST_DEVICE void decode_pair(
    T g, int code, bool clamps_from_below, T& of_self, T& of_other) {
  const T zero = T(0);
  if constexpr (is_pseudo(sharing)) {
    const T nan = sharing == Sharing::straight_through ? g : zero;
    of_self = code == kSelf ? g
        : code == kOther    ? decode_beyond<sharing>(g, clamps_from_below)
                            : nan;
    of_other = code == kOther ? g : zero;
  } else {
    const T share = code == kBoth ? g * T(0.5) : g;
    const bool all = sharing == Sharing::nan_to_both && code == 0;
    of_self = (code & kSelf) || all ? share : zero;
    of_other = (code & kOther) || all ? share : zero;
  }
}

template <Sharing sharing, typename T>
CLAMPGRAD_HOST_DEVICE void decode_triple(T g, int code, T& of_x, T& of_lo, T& of_hi) {
  const T zero = T(0), half = g * T(0.5);
  if constexpr (is_pseudo(sharing)) {
    const T nan = sharing == Sharing::straight_through ? g : zero;
    const bool is_below = code >= beyond::below_lo && code <= beyond::below_none;
    of_x = code == beyond::inside ? g
        : is_below                ? decode_beyond<sharing>(g, true)
        : code == beyond::above   ? decode_beyond<sharing>(g, false)
                                  : nan;
    of_lo = code == beyond::below_lo ? g : code == beyond::below_both ? half : zero;
    of_hi = code == beyond::below_hi || code == beyond::above ? g
        : code == beyond::below_both                          ? half
                                                              : zero;
  } else {
    const bool pair = code == (kX | kLo) || code == (kX | kHi) || code == (kLo | kHi);
    const T share = pair ? half : g;
    of_x = code & kX ? share : zero;
    of_lo = code & kLo ? share : zero;
    of_hi = code & kHi ? share : zero;
    if (code == kAll) {
      if constexpr (sharing == Sharing::nested) {
        of_x = of_lo = g * T(0.25);
        of_hi = half;
      } else if constexpr (sharing == Sharing::nan_to_ends) {
        of_lo = zero;
      } else {
        of_x = of_lo = of_hi = g / T(3);
      }
    }
  }
}

} // namespace clampgrad
