// What makes one convention different from another, in one file: docs/adding_a_convention.md. It
// has two parts. The first says which rules a convention takes. The second has the rules, per
// element: it is compiled once per kind of V (rules/element.h), where CLAMPGRAD_ISA names the kind.
//
// The values of enums are part of saved graphs: append, do not reorder.

#ifndef CLAMPGRAD_CONVENTIONS
#define CLAMPGRAD_CONVENTIONS

#include "base/bits.h"
#include "base/convention.h"

namespace clampgrad {

// ---- Numbers for bounds -------------------------------------------------------------------------

// A gate says what passes of the gradient of x.
enum class Gate : int64_t {
  strict = 0, // open strictly between the bounds: min_norm and joint, whose numbers are constants
  inclusive = 1, // open at the bounds too
  half = 2, // minimum(maximum(x, lo), hi) with every tie shared equally
  with_grad = 3, // outside, open where a descent step moves x back
  with_grad_maximize = 4, // ... where an ascent step does
  restoring = 5, // outside, the descent direction back, of length 1
  restoring_maximize = 6, // ... the ascent direction
};
constexpr int64_t kGates = 7;

// Only a gate that is a linear function of g has a tangent.
constexpr bool is_linear(Gate gate) {
  return gate < Gate::with_grad || gate > Gate::restoring_maximize;
}

// Codes of one plane: 0 shut, 1 open. Of two planes:
//
//                    0     1       2      3
//   half             0     1       1/2    1/4     what x gets of g
//   pseudo-gradient  NaN   inside  below  above   where x lies, seen from the result
constexpr int planes(Gate gate) {
  return gate == Gate::half || !is_linear(gate) ? 2 : 1;
}

// A pseudo-gradient records where x lies, whichever it is.
constexpr Gate encoded_as(Gate gate) {
  return is_linear(gate) ? gate : Gate::with_grad;
}

// Not for straight_through, which has no gate.
inline Gate gate_of(Convention c) {
  switch (c.gradient) {
    case Gradient::inclusive:
      return Gate::inclusive;
    case Gradient::half:
      return Gate::half;
    case Gradient::with_grad:
      return c.maximize ? Gate::with_grad_maximize : Gate::with_grad;
    case Gradient::restoring:
      return c.maximize ? Gate::restoring_maximize : Gate::restoring;
    case Gradient::min_norm:
    case Gradient::joint:
    case Gradient::straight_through:
      break;
  }
  return Gate::strict;
}

// ---- Tensors ------------------------------------------------------------------------------------
// A bit per argument is recorded, set where it gets a share. Those that are set share equally,
// except where a rule or a sharing says otherwise.

// How the shares are read from the bits.
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
  return sharing >= Sharing::with_grad && sharing <= Sharing::straight_through;
}

constexpr bool is_linear(Sharing sharing) {
  return !is_pseudo(sharing) || sharing == Sharing::straight_through;
}

// Of those that two arguments, or three, have none of, the bits are read as in `equal`.
constexpr Sharing of_two(Sharing sharing) {
  return sharing == Sharing::nested || sharing == Sharing::nan_to_ends ? Sharing::equal : sharing;
}
constexpr Sharing of_three(Sharing sharing) {
  return sharing == Sharing::nan_to_both ? Sharing::equal : sharing;
}

// The gate that a pseudo-gradient of x has, and the other way round: both enums have these four in
// one order. One that is appended needs a case in both functions, as in is_linear and is_pseudo.
// Not for straight_through, which has no gate.
constexpr int64_t kSharingOfGate =
    static_cast<int64_t>(Sharing::with_grad) - static_cast<int64_t>(Gate::with_grad);
constexpr Gate gate_of(Sharing sharing) {
  return static_cast<Gate>(static_cast<int64_t>(sharing) - kSharingOfGate);
}
static_assert(gate_of(Sharing::restoring_maximize) == Gate::restoring_maximize);
inline Sharing pseudo_sharing(Convention c) {
  return c.gradient == Gradient::straight_through
      ? Sharing::straight_through
      : static_cast<Sharing>(static_cast<int64_t>(gate_of(c)) + kSharingOfGate);
}

// Two Tensors: clamp_min and clamp_max, maximum and minimum, fmax and fmin. PyTorch's releases
// treat their ties in these three ways.
enum class PairKind { clamp, extremum, nan_skipping_extremum };

constexpr PairKind kind_of(Extremum op) {
  return op == Extremum::fmax || op == Extremum::fmin ? PairKind::nan_skipping_extremum
                                                      : PairKind::extremum;
}
constexpr bool greater_wins(Extremum op) {
  return op == Extremum::maximum || op == Extremum::fmax;
}

// Who gets a share of a tie, and who of a NaN, as sets of bits.
constexpr int kSelf = 1, kOther = 2, kBoth = 3;
struct PairCodes {
  int tie, nan;
};

// `differentiated` is such a set too.
inline PairCodes pair_codes(PairKind kind, Gradient gradient, int64_t differentiated) {
  switch (gradient) {
    case Gradient::min_norm:
      return {differentiated == kBoth ? kBoth : 0, 0};
    case Gradient::half:
      return {kBoth, 0};
    case Gradient::joint:
      return {kBoth, kind == PairKind::nan_skipping_extremum ? kSelf : kBoth};
    case Gradient::inclusive:
      return kind == PairKind::clamp   ? PairCodes{kSelf, 0}
          : kind == PairKind::extremum ? PairCodes{kBoth, kBoth}
                                       : PairCodes{kSelf, kSelf};
    default: // a pseudo-gradient: what is at the bound belongs to self
      return {kSelf, 0};
  }
}

inline Sharing pair_sharing(Convention c, PairCodes codes) {
  return is_pseudo(c.gradient) ? pseudo_sharing(c)
      : codes.nan == kBoth     ? Sharing::nan_to_both
                               : Sharing::equal;
}

// Three Tensors. The codes of the pseudo-gradients say where x lies, seen from the result, and
// which bounds get a share besides: 0 NaN; 1 inside; 2 below, lo; 3 below, hi; 4 below, both;
// 5 below, none; 6 above, hi.
constexpr int kX = 1, kLo = 2, kHi = 4, kAll = 7;

// A rule goes by the name of its convention. The pseudo-gradients have one: where x lies.
constexpr Gradient triple_rule(Gradient gradient) {
  return is_pseudo(gradient) ? Gradient::with_grad : gradient;
}

inline Sharing triple_sharing(Convention c) {
  return is_pseudo(c.gradient)        ? pseudo_sharing(c)
      : c.gradient == Gradient::half  ? Sharing::nested
      : c.gradient == Gradient::joint ? Sharing::nan_to_ends
                                      : Sharing::equal;
}

// Of a number and a Tensor for bounds: least norm and the pseudo-gradients look at all three
// arguments at once. The others give a number its own rule, one bound after the other.
inline bool mixed_at_once(Gradient gradient) {
  return gradient == Gradient::min_norm || is_pseudo(gradient);
}

} // namespace clampgrad

#endif

#if defined(CLAMPGRAD_ISA)
namespace clampgrad::CLAMPGRAD_ISA {
namespace {

// ---- Numbers for bounds -------------------------------------------------------------------------

// What holds at x.
template <Gate gate, bool has_lo, bool has_hi, typename K>
CLAMPGRAD_HOST_DEVICE Weight<Mask<K>> weight(K x, Mask<K> comparable, const Bounds<K>& b) {
  using M = Mask<K>;
  // Of two bounds, one shuts NaN out, whose key lies beyond all numbers or compares as false.
  M open = has_lo && has_hi ? everywhere<M>() : comparable, at_lo = M(), at_hi = M();
  if constexpr (gate == Gate::strict && has_lo && has_hi) {
    return {between(x, b), M(), M()};
  }
  if constexpr (has_lo) {
    open = open & (gate == Gate::strict ? lt(b.lo, x) : le(b.lo, x));
    at_lo = eq(x, b.lo);
  }
  if constexpr (has_hi) {
    open = open & (gate == Gate::strict ? lt(x, b.hi) : le(x, b.hi));
    at_hi = eq(x, b.hi);
  }
  if constexpr (gate == Gate::half) {
    const M equal = eq(b.lo, b.hi); // absent bounds are not
    return {open, M(at_lo | at_hi), has_lo && has_hi ? M(at_lo & equal) : M()};
  } else {
    return {open, M(), M()};
  }
}

// Where a pseudo-gradient lets g pass. Descent moves x by -g: up where g < 0. A step of length 0
// leaves x where it is.
template <Gate gate, typename E, typename V>
CLAMPGRAD_HOST_DEVICE Mask<V> passes(V g, const Position<Mask<V>>& at) {
  if constexpr (gate == Gate::with_grad || gate == Gate::with_grad_maximize) {
    const auto key = E::key(g);
    const auto none = KeyOf<E, V>();
    const Mask<V> falls = le(none, key), rises = le(key, none);
    const Mask<V> back = gate == Gate::with_grad ? (at.above & falls) | (at.below & rises)
                                                 : (at.above & rises) | (at.below & falls);
    return at.inside | (E::comparable(g) & back);
  } else {
    return at.inside;
  }
}

// What a pseudo-gradient makes of g.
template <Gate gate, typename E, typename V>
CLAMPGRAD_HOST_DEVICE V pushed(V g, const Position<Mask<V>>& at) {
  const V zero = V();
  const Mask<V> open = passes<gate, E>(g, at);
  if constexpr (gate == Gate::restoring) {
    return select(open, g, E::template sign<V>(at.above, at.below));
  } else if constexpr (gate == Gate::restoring_maximize) {
    return select(open, g, E::template sign<V>(at.below, at.above));
  } else {
    return select(open, g, zero);
  }
}

// ---- Two Tensors --------------------------------------------------------------------------------
// Who gets a share is pair_shares (rules/shares.h), by the PairCodes.

template <Sharing sharing, typename M>
CLAMPGRAD_HOST_DEVICE PairShares<M> pair_in(M self, M other) {
  if constexpr (is_pseudo(sharing)) {
    return {self, other, M()};
  } else if constexpr (sharing == Sharing::nan_to_both) {
    const M nan = negate<M>(self | other);
    return {M(self | nan), M(other | nan), M(self & other)};
  } else {
    return {self, other, M(self & other)};
  }
}

// ---- Three Tensors ------------------------------------------------------------------------------

// Who gets a share. `differentiated` has the bits of the arguments that are being differentiated.
template <Gradient rule, typename K>
CLAMPGRAD_HOST_DEVICE TripleShares<Mask<K>> triple_shares(
    const Compared<K>& x, const Compared<K>& lo, const Compared<K>& hi, int differentiated) {
  using M = Mask<K>;
  if constexpr (rule == Gradient::inclusive) {
    return {
        M(le(lo, x) & le(x, hi)),
        M(lt(x, lo) & lt(lo, hi)),
        M(lt(hi, x) | lt(hi, lo)),
        M(),
        M(),
        M()};
  } else if constexpr (rule == Gradient::joint) {
    const M ordered = lt(lo, hi), crossed = lt(hi, lo), apart = le(lo, hi);
    const M under = lt(x, lo), over = lt(hi, x);
    const M at_lo = M(eq(x, lo) & ordered), at_hi = M(eq(x, hi) & ordered);
    return {
        negate<M>(under | over),
        M(under & apart),
        M((over & apart) | crossed),
        M(),
        M(),
        M(),
        {M(at_lo | at_hi), at_lo, at_hi}};
  } else if constexpr (rule == Gradient::half) {
    const M number = x.number & lo.number & hi.number;
    const M raised = lt(x, lo);
    const Compared<K> inner = {
        larger(x.key, lo.key), M(x.comparable & lo.comparable), M(x.number & lo.number)};
    const M shut = lt(hi, inner), tie = eq(inner, hi);
    const M open = number & negate<M>(shut);
    return {
        M(open & negate<M>(raised)),
        M(open & le(x, lo)),
        M(number & (shut | tie)),
        tie,
        M(),
        eq(x, lo)};
  } else {
    static_assert(rule == Gradient::min_norm);
    const M number = x.number & lo.number & hi.number;
    const M at_x = le(lo, x) & le(x, hi), at_lo = le(x, lo) & le(lo, hi);
    const M at_hi = number & (le(hi, x) | le(hi, lo));
    const M x_lo = at_x & at_lo, all = x_lo & at_hi;
    const M alone = (at_x ^ at_lo ^ at_hi) & negate<M>(all);
    // A constant among several active inputs makes 0 a subgradient.
    const bool of_x = differentiated & kX, of_lo = differentiated & kLo,
               of_hi = differentiated & kHi;
    const M constant =
        (at_x & where<M>(!of_x)) | (at_lo & where<M>(!of_lo)) | (at_hi & where<M>(!of_hi));
    const M open = M(alone | negate<M>(constant));
    const M two = (x_lo & where<M>(of_x && of_lo)) | (at_x & at_hi & where<M>(of_x && of_hi)) |
        (at_lo & at_hi & where<M>(of_lo && of_hi));
    return {
        M(at_x & open),
        M(at_lo & open),
        M(at_hi & open),
        two,
        M(all & where<M>(differentiated == kAll)),
        M()};
  }
}

// The bits that are recorded of it.
template <Gradient rule, typename M>
CLAMPGRAD_HOST_DEVICE Triple<M> bits_of(const TripleShares<M>& among) {
  if constexpr (rule == Gradient::joint) { // two that get all of g are a case of their own
    const auto& tied = among.halved;
    const M both = among.x & among.hi;
    return {among.x, M(among.lo | tied.lo | both), M(among.hi | tied.hi)};
  } else {
    return {among.x, among.lo, among.hi};
  }
}

template <Sharing sharing, typename M>
CLAMPGRAD_HOST_DEVICE TripleShares<M> triple_in(const Triple<M>& bits) {
  const auto& [x, lo, hi] = bits;
  const M x_lo = x & lo;
  if constexpr (sharing == Sharing::nested) {
    return {x, lo, hi, M((x | lo) & hi), M(), x_lo};
  } else {
    const M all = x_lo & hi, several = M(x_lo | (x & hi) | (lo & hi));
    if constexpr (sharing == Sharing::nan_to_ends) {
      return {x, M(lo ^ all), hi, M(several ^ all), M(), M()};
    } else {
      return {x, lo, hi, several, all, M()};
    }
  }
}

} // namespace
} // namespace clampgrad::CLAMPGRAD_ISA
#endif
