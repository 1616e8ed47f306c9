// What x gets of a gradient where the bounds are numbers, by docs/conventions.md.
//
// A rule says what holds at x, as masks, and what that makes of g. The composed path does one after
// the other; the kernels do the first in forward, the second in backward, and keep masks as bits.

namespace clampgrad::CLAMPGRAD_INSTANCE {
namespace {

// ---- What passes, and where x lies --------------------------------------------------------------

// Where `open`, g passes: half of it where also `tie`, a quarter where also `quarter`. `quarter`
// must lie within the other two.
template <typename M>
struct NumberMasks {
  M open, tie, quarter;
};

// Where x lies, seen from the result: this decides a pseudo-gradient. Nowhere at NaN.
template <typename M>
struct Position {
  M inside, below, above;
};

template <typename K>
CLAMPGRAD_RULE Mask<K> between(K x, const Bounds<K>& b) {
#if defined(CLAMPGRAD_VECTOR_BYTES)
  // One comparison: unsigned and counted from the first key inside, those below wrap around.
  if constexpr (sizeof(lane_of(x)) == 2) {
    const K first = b.lo + int16_t(1), end = larger(b.hi, first);
    const auto lowest = Vector<uint16_t>(first) ^ uint16_t(0x8000);
    return lt(K(Vector<uint16_t>(x) - lowest), K(Vector<uint16_t>(end) - lowest));
  }
#endif
  return lt(b.lo, x) & lt(x, b.hi);
}

// The Position of x for a pseudo-gradient, else NumberMasks. K is a key, which is compared in place
// of a number and counts where `comparable` (Real and Short in element.h). `result` is the key of
// clamp's result; only a pseudo-gradient reads it.
template <BitFormat format, bool has_lo, bool has_hi, typename K>
CLAMPGRAD_RULE auto number_masks(K x, Mask<K> comparable, const Bounds<K>& b, const K& result) {
  using M = Mask<K>;
  if constexpr (format == BitFormat::position) {
    return Position<M>{
        M(comparable & eq(x, result)),
        M(comparable & lt(x, result)),
        M(comparable & lt(result, x))};
  } else if constexpr (
      has_lo && has_hi && kNumberRules[format].tie == 0 && kNumberRules[format].both == 0) {
    return NumberMasks<M>{between(x, b), M(), M()};
  } else {
    constexpr NumberRule of = kNumberRules[format];
    constexpr bool is_open = of.tie == 0; // the interval in which g passes
    // With two bounds, a NaN fails one of the comparisons: compared as a float it fails both, and
    // as a 16-bit key it lies beyond all numbers. With one bound it has to be masked.
    M open = has_lo && has_hi ? everywhere<M>() : comparable, at_lo = M(), at_hi = M();
    if constexpr (has_lo) {
      open = open & (is_open ? lt(b.lo, x) : le(b.lo, x));
      at_lo = eq(x, b.lo);
    }
    if constexpr (has_hi) {
      open = open & (is_open ? lt(x, b.hi) : le(x, b.hi));
      at_hi = eq(x, b.hi);
    }
    M tie = of.tie == 2 ? M(at_lo | at_hi) : M(), quarter = M();
    if constexpr (has_lo && has_hi && of.both != of.tie) {
      const M both = at_lo & eq(b.lo, b.hi);
      open = of.both == 0 ? M(open & negate<M>(both)) : is_open ? M(open | both) : open;
      tie = of.both == 1 ? M(tie & negate<M>(both)) : of.tie == 2 ? tie : M(tie | both);
      quarter = of.both == 4 ? both : M();
    }
    return NumberMasks<M>{open, tie, quarter};
  }
}

// ---- What it gets -------------------------------------------------------------------------------

// Selects, and never multiplies by 0: a blocked element gets an exact 0 even where g is inf or NaN.
template <typename Rule, typename E, typename V, typename Shares>
CLAMPGRAD_RULE void share(V g, const NumberMasks<Mask<V>>& at, Shares& out) {
  V part = g;
  if constexpr (Rule::bits == 2) {
    part = select(at.tie, select(at.quarter, E::quartered(g), E::halved(g)), g);
  }
  out[0] = select(at.open, part, V());
}

// What a pseudo-gradient makes of g. Descent moves x by -g: up where g < 0. A step of length 0
// leaves x where it is. Ascent is descent in the other direction.
template <typename Rule, typename E, typename V, typename Shares>
CLAMPGRAD_RULE void share(V g, const Position<Mask<V>>& at, Shares& out) {
  const auto& above = Rule::maximize ? at.below : at.above;
  const auto& below = Rule::maximize ? at.above : at.below;
  if constexpr (Rule::rule == RuleName::with_grad) {
    const auto key = E::key(g);
    const auto none = KeyOf<E, V>();
    const Mask<V> falls = le(none, key), rises = le(key, none);
    const Mask<V> passes = at.inside | (E::comparable(g) & ((above & falls) | (below & rises)));
    out[0] = E::pseudo_gradient(passes, g, V());
  } else if constexpr (Rule::rule == RuleName::restoring) {
    out[0] = E::pseudo_gradient(at.inside, g, E::template sign<V>(above, below));
  } else {
    static_assert(Rule::rule == RuleName::straight_through);
    out[0] = g;
  }
}

// ---- As bits ------------------------------------------------------------------------------------
// One bit: 0 blocked, 1 open. Two, the first the lower one:
//
//                    0     1       2      3
//   half             0     1       1/2    1/4     what x gets of g
//   pseudo-gradient  NaN   inside  below  above   where x lies

template <typename M, size_t n>
CLAMPGRAD_RULE void number_bits(const NumberMasks<M>& at, M (&bits)[n]) {
  const M shared = at.open & at.tie;
  bits[0] = M((at.open ^ shared) | at.quarter);
  if constexpr (n == 2) {
    bits[1] = shared;
  }
}
template <typename M>
CLAMPGRAD_RULE void number_bits(const Position<M>& at, M (&bits)[2]) {
  bits[0] = M(at.inside | at.above);
  bits[1] = M(at.below | at.above);
}

// Masks with the same shares as those of number_masks().
template <RuleName rule, bool maximize, typename M, size_t n>
CLAMPGRAD_RULE auto masks_in(Rule<1, rule, maximize>, const M (&bits)[n], bool) {
  if constexpr (is_pseudo(rule)) {
    const M above = bits[0] & bits[1];
    return Position<M>{M(bits[0] ^ above), M(bits[1] ^ above), above};
  } else if constexpr (n == 2) {
    return NumberMasks<M>{M(bits[0] | bits[1]), bits[1], bits[0]};
  } else {
    return NumberMasks<M>{bits[0], M(), M()};
  }
}

} // namespace
} // namespace clampgrad::CLAMPGRAD_INSTANCE
