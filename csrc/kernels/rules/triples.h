// Who gets which share of a gradient where arguments are Tensors, per element. The rules are those
// of docs/conventions.md. As in rules/gate.h, a rule says who gets a share (pair_shares,
// triple_shares, beyond_bounds) and what each gets (`shared`), and kernels keep the former as bits
// in between (rules/ops.h). Comes after gate.h.

namespace clampgrad::CLAMPGRAD_ISA {
namespace {

// ---- Two arguments ------------------------------------------------------------------------------

// Who gets a share, and whether the value of the result is self's.
template <typename M>
struct PairResult {
  PairShares<M> shares;
  M takes_self;
};

// maximum where greater_wins, else minimum; fmax and fmin where a NaN loses. `codes` decides the
// cases that conventions disagree on.
template <bool greater_wins, bool nan_loses, typename K>
CLAMPGRAD_HOST_DEVICE PairResult<Mask<K>> pair_shares(
    const Compared<K>& self, const Compared<K>& other, const PairCodes& codes) {
  using M = Mask<K>;
  const auto& greater = greater_wins ? self : other;
  const auto& lesser = greater_wins ? other : self;
  const M wins = lt(lesser, greater), loses = lt(greater, lesser);
  const M wins_or_ties = le(lesser, greater), loses_or_ties = le(greater, lesser);
  M to_self = select(where<M>(codes.tie & kSelf), wins_or_ties, wins);
  M to_other = select(where<M>(codes.tie & kOther), loses_or_ties, loses);
  M nan = negate<M>(wins_or_ties | loses_or_ties);
  M takes_self = M(wins_or_ties | negate<M>(self.number));
  if constexpr (nan_loses) {
    const M other_nan = negate<M>(other.number);
    nan = M(other_nan & negate<M>(self.number));
    to_self = M(to_self | (other_nan & self.number));
    to_other = M(to_other | (other.number & negate<M>(self.number)));
    takes_self = M(wins_or_ties | other_nan);
  }
  return {
      {M(to_self | (nan & where<M>(codes.nan & kSelf))),
       M(to_other | (nan & where<M>(codes.nan & kOther))),
       M(eq(self, other) & where<M>(codes.tie == kBoth))},
      takes_self};
}

template <typename V>
struct PairGradient {
  V self, other;
};

template <typename E, typename V>
CLAMPGRAD_HOST_DEVICE PairGradient<V> shared(V g, const PairShares<Mask<V>>& among) {
  const V zero = V(), share = select(among.halved, E::halved(g), g);
  return {select(among.self, share, zero), select(among.other, share, zero)};
}

// ---- Three arguments ----------------------------------------------------------------------------

// torch.clamp of three Tensors: a NaN among them is the result, and hi wins where lo > hi.
template <typename V, typename K>
CLAMPGRAD_HOST_DEVICE V
clamped(V x, V lo, V hi, const Compared<K>& kx, const Compared<K>& klo, const Compared<K>& khi) {
  using M = Mask<K>;
  const M raised = lt(kx, klo);
  const M lowered = select(raised, lt(khi, klo), lt(khi, kx));
  V y = select(raised, lo, x);
  y = select(lowered, hi, y);
  y = select(khi.number, y, hi);
  y = select(klo.number, y, lo);
  return select(kx.number, y, x);
}

template <typename E, typename V>
CLAMPGRAD_HOST_DEVICE Triple<V> shared(V g, const TripleShares<Mask<V>>& among) {
  const V zero = V(), half = E::halved(g);
  const V share = select(among.three, E::third(g), select(among.two, half, g));
  const V inner = select(among.nested, select(among.two, E::quartered(g), half), share);
  const auto& halved = among.halved;
  return {
      select(halved.x, half, select(among.x, inner, zero)),
      select(halved.lo, half, select(among.lo, inner, zero)),
      select(halved.hi, half, select(among.hi, share, zero))};
}

// Beside a pseudo-gradient of x, which its position decides, the bounds get what they get of
// least norm where x is not the result; there it lies above hi, or below lo or a hi that is less.
template <typename M>
struct Beyond {
  Position<M> x;
  M lo, hi;
  M halved;
};

template <typename K>
CLAMPGRAD_HOST_DEVICE Beyond<Mask<K>> beyond_bounds(
    const Compared<K>& x,
    const Compared<K>& lo,
    const Compared<K>& hi,
    const Compared<K>& result,
    int differentiated) {
  using M = Mask<K>;
  const M below = lt(x, result), above = lt(result, x);
  const M tie = eq(lo, hi) & where<M>((differentiated & kLo) && (differentiated & kHi));
  const M halved = M(below & tie);
  return {
      {eq(x, result), below, above},
      M((below & lt(lo, hi)) | halved),
      M(above | (below & lt(hi, lo)) | halved),
      halved};
}

template <typename E, typename V>
CLAMPGRAD_HOST_DEVICE PairGradient<V> of_bounds(V g, const Beyond<Mask<V>>& at) {
  return shared<E>(g, PairShares<Mask<V>>{at.lo, at.hi, at.halved});
}

// ---- As bits ------------------------------------------------------------------------------------

// The gradient of x where a pseudo-gradient is asked for.
template <Sharing sharing, typename E, typename V>
CLAMPGRAD_HOST_DEVICE V pushed_by(V g, const Position<Mask<V>>& at) {
  if constexpr (sharing == Sharing::straight_through) {
    return g;
  } else {
    return pushed<gate_of(sharing), E>(g, at);
  }
}

// `clamps_from_below`: the other argument is a lower bound.
template <typename M>
CLAMPGRAD_HOST_DEVICE Position<M> position_in_pair(M self, M other, bool clamps_from_below) {
  return {self, M(other & where<M>(clamps_from_below)), M(other & where<M>(!clamps_from_below))};
}

// `result` has the keys of clamped().
template <Gradient rule, typename K>
CLAMPGRAD_HOST_DEVICE Triple<Mask<K>> encode_triple(
    const Compared<K>& x,
    const Compared<K>& lo,
    const Compared<K>& hi,
    const Compared<K>& result,
    int differentiated) {
  using M = Mask<K>;
  if constexpr (is_pseudo(rule)) {
    const auto at = beyond_bounds(x, lo, hi, result, differentiated);
    const M to_one = M(at.x.below & (at.lo ^ at.hi));
    return {
        M(at.x.inside | (at.x.below & negate<M>(at.lo))),
        M(to_one | at.x.above),
        M((at.x.below ^ to_one) | at.x.above)};
  } else {
    return bits_of<rule>(triple_shares<rule>(x, lo, hi, differentiated));
  }
}

template <typename M>
CLAMPGRAD_HOST_DEVICE Beyond<M> beyond_in(const Triple<M>& bits) {
  const auto& [x, lo, hi] = bits;
  const M above = lo & hi, below = lo ^ hi;
  const M to_lo = M(below & negate<M>(x)), halved = M(to_lo & hi);
  return {{M(x & negate<M>(lo | hi)), below, above}, to_lo, M(above | (x & lo) | halved), halved};
}

} // namespace
} // namespace clampgrad::CLAMPGRAD_ISA
