// Rules for x between numbers, by docs/conventions.md.
//
// A rule has two halves: masks of x, and the gradient from these masks and g. The composed path
// runs both in backward. The kernels run the first in forward and save the masks as bits.

namespace clampgrad::CLAMPGRAD_INSTANCE {
namespace {

// ---- Masks of x ---------------------------------------------------------------------------------

// Where `pass` is set, x gets g: half of it where `half` is set too, and a quarter where `quarter`
// is set too. All three bits fit into two because `quarter` lies within the other two.
template <typename M>
struct NumberMasks {
  M pass, half, quarter;
};

// Where x lies, seen from the result, which decides a pseudo-gradient. A NaN sets no mask.
template <typename M>
struct Region {
  M inside, below, above;
};

template <typename K>
CLAMPGRAD_RULE Mask<K> between(K x, const Bounds<K>& b) {
#if defined(CLAMPGRAD_VECTOR_BYTES)
  // One unsigned comparison of the distance to the first key inside: keys below it wrap around.
  if constexpr (sizeof(lane_of(x)) == 2) {
    const K first = b.lo + int16_t(1), end = larger(b.hi, first);
    const auto lowest = Vector<uint16_t>(first) ^ uint16_t(0x8000);
    return lt(K(Vector<uint16_t>(x) - lowest), K(Vector<uint16_t>(end) - lowest));
  }
#endif
  return lt(b.lo, x) & lt(x, b.hi);
}

// Returns the Region of x for a pseudo-gradient, else NumberMasks. K is a key, which is compared in
// place of a number and counts where `comparable` (Real and Bits16 in element.h). `result` is the
// key of clamp's result; only a pseudo-gradient reads it.
template <BitFormat format, bool has_lo, bool has_hi, typename K>
CLAMPGRAD_RULE auto number_masks(K x, Mask<K> comparable, const Bounds<K>& b, const K& result) {
  using M = Mask<K>;
  if constexpr (format == BitFormat::region) {
    return Region<M>{
        M(comparable & eq(x, result)),
        M(comparable & lt(x, result)),
        M(comparable & lt(result, x))};
  } else if constexpr (
      has_lo && has_hi && kNumberTies[format].at_bound == Share::none &&
      kNumberTies[format].at_both_bounds == Share::none) {
    return NumberMasks<M>{between(x, b), M(), M()};
  } else {
    constexpr NumberTies ties = kNumberTies[format];
    constexpr bool excludes_bounds = ties.at_bound == Share::none;
    // With two bounds, a NaN fails one of the comparisons: compared as a float it fails both, and
    // as a 16-bit key it lies beyond all numbers. With one bound it has to be masked.
    M pass = has_lo && has_hi ? all_true<M>() : comparable, at_lo = M(), at_hi = M();
    if constexpr (has_lo) {
      pass = pass & (excludes_bounds ? lt(b.lo, x) : le(b.lo, x));
      at_lo = eq(x, b.lo);
    }
    if constexpr (has_hi) {
      pass = pass & (excludes_bounds ? lt(x, b.hi) : le(x, b.hi));
      at_hi = eq(x, b.hi);
    }
    M half = ties.at_bound == Share::half ? M(at_lo | at_hi) : M(), quarter = M();
    if constexpr (has_lo && has_hi && ties.at_both_bounds != ties.at_bound) {
      const M both = at_lo & eq(b.lo, b.hi);
      pass = ties.at_both_bounds == Share::none ? M(pass & logical_not<M>(both))
          : excludes_bounds                     ? M(pass | both)
                                                : pass;
      half = ties.at_both_bounds == Share::all ? M(half & logical_not<M>(both))
          : ties.at_bound == Share::half       ? half
                                               : M(half | both);
      quarter = ties.at_both_bounds == Share::quarter ? both : M();
    }
    return NumberMasks<M>{pass, half, quarter};
  }
}

// ---- The share of x -----------------------------------------------------------------------------

// Selects, and never multiplies by 0: a blocked element gets an exact 0 even where g is inf or NaN.
template <typename Rule, typename E, typename V, typename Shares>
CLAMPGRAD_RULE void compute_shares(V g, const NumberMasks<Mask<V>>& at, Shares& out) {
  V part = g;
  if constexpr (Rule::kBits == 2) {
    part = select(at.half, select(at.quarter, E::quarter_of(g), E::half_of(g)), g);
  }
  out[0] = select(at.pass, part, V());
}

// Computes a pseudo-gradient. Descent moves x by -g: up where g < 0. A step of length 0 leaves x
// where it is. Ascent is descent in the other direction.
template <typename Rule, typename E, typename V, typename Shares>
CLAMPGRAD_RULE void compute_shares(V g, const Region<Mask<V>>& at, Shares& out) {
  const auto& above = Rule::kMaximize ? at.below : at.above;
  const auto& below = Rule::kMaximize ? at.above : at.below;
  if constexpr (Rule::kRule == RuleName::with_grad) {
    const auto key = E::key(g);
    const auto none = KeyOf<E, V>();
    const Mask<V> lowers_x = le(none, key), raises_x = le(key, none);
    const Mask<V> passes =
        at.inside | (E::comparable(g) & ((above & lowers_x) | (below & raises_x)));
    out[0] = E::pseudo_gradient(passes, g, V());
  } else if constexpr (Rule::kRule == RuleName::restoring) {
    out[0] = E::pseudo_gradient(at.inside, g, E::template sign<V>(above, below));
  } else {
    static_assert(Rule::kRule == RuleName::straight_through);
    out[0] = g;
  }
}

// ---- Masks as bits ------------------------------------------------------------------------------
// One bit: 0 blocks g, 1 passes it. Two, the first the lower one:
//
//                    0     1       2      3
//   half             0     1       1/2    1/4     the share of x
//   pseudo-gradient  NaN   inside  below  above   the region of x

template <typename M, size_t n>
CLAMPGRAD_RULE void pack_number_bits(const NumberMasks<M>& at, M (&bits)[n]) {
  const M shared = at.pass & at.half;
  bits[0] = M((at.pass ^ shared) | at.quarter);
  if constexpr (n == 2) {
    bits[1] = shared;
  }
}
template <typename M>
CLAMPGRAD_RULE void pack_number_bits(const Region<M>& at, M (&bits)[2]) {
  bits[0] = M(at.inside | at.above);
  bits[1] = M(at.below | at.above);
}

// Returns masks with the same shares as those of number_masks().
template <RuleName rule, bool maximize, typename M, size_t n>
CLAMPGRAD_RULE auto unpack_masks(Rule<1, rule, maximize>, const M (&bits)[n], bool) {
  if constexpr (is_pseudo(rule)) {
    const M above = bits[0] & bits[1];
    return Region<M>{M(bits[0] ^ above), M(bits[1] ^ above), above};
  } else if constexpr (n == 2) {
    return NumberMasks<M>{M(bits[0] | bits[1]), bits[1], bits[0]};
  } else {
    return NumberMasks<M>{bits[0], M(), M()};
  }
}

} // namespace
} // namespace clampgrad::CLAMPGRAD_INSTANCE
