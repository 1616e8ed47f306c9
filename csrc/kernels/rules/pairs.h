// What two Tensors get of a gradient. The kernels keep a bit for each, set where it gets a share.

namespace clampgrad::CLAMPGRAD_INSTANCE {
namespace {

// Where `self` and `other` get a gradient, and where it is halved. `takes_larger`: the operator is
// a maximum. `takes_self`: the result is self.
template <typename M>
struct PairMasks {
  M self, other, halved;
  bool takes_larger;
  M takes_self = {};
};

// Where the result is self. Of two numbers that are equal it is self, or the other: this decides
// between +0 and -0.
template <typename K>
CLAMPGRAD_RULE Mask<K> takes_self(
    const Compared<K>& self,
    const Compared<K>& other,
    bool takes_larger,
    bool skips_nan,
    bool tie_takes_other = false) {
  const auto& larger = takes_larger ? self : other;
  const auto& smaller = takes_larger ? other : self;
  const auto wins = tie_takes_other ? lt(smaller, larger) : le(smaller, larger);
  return Mask<K>(wins | negate<Mask<K>>(skips_nan ? other.number : self.number));
}

template <typename K>
CLAMPGRAD_RULE PairMasks<Mask<K>> pair_masks(
    const Compared<K>& self,
    const Compared<K>& other,
    const PairRule& rule,
    bool takes_larger,
    bool skips_nan) {
  using M = Mask<K>;
  const auto& larger = takes_larger ? self : other;
  const auto& smaller = takes_larger ? other : self;
  const M wins = lt(smaller, larger), loses = lt(larger, smaller);
  const M wins_or_ties = le(smaller, larger), loses_or_ties = le(larger, smaller);
  M to_self = select(broadcast<M>(rule.tie != 0), wins_or_ties, wins);
  M to_other = select(broadcast<M>(rule.tie & kOther), loses_or_ties, loses);
  M nan = negate<M>(wins_or_ties | loses_or_ties);
  if (skips_nan) {
    const M other_nan = negate<M>(other.number);
    nan = M(other_nan & negate<M>(self.number));
    to_self = M(to_self | (other_nan & self.number));
    to_other = M(to_other | (other.number & negate<M>(self.number)));
  }
  return {
      M(to_self | (nan & broadcast<M>(rule.nan != 0))), // no rule gives it to `other` alone
      M(to_other | (nan & broadcast<M>(rule.nan & kOther))),
      M(eq(self, other) & broadcast<M>(rule.tie == kBoth)),
      takes_larger,
      takes_self(self, other, takes_larger, skips_nan)};
}

// Under a pseudo-gradient, self is the result where it has a share, else beyond the bound.
template <typename Rule, typename E, typename V, typename Shares>
CLAMPGRAD_RULE void share(V g, const PairMasks<Mask<V>>& at, Shares& out) {
  using M = Mask<V>;
  const V zero = V(), part = select(at.halved, E::halved(g), g);
  if constexpr (is_pseudo(Rule::rule)) {
    const M larger = broadcast<M>(at.takes_larger);
    const Position<M> self = {at.self, M(at.other & larger), M(at.other & negate<M>(larger))};
    share<Rule, E>(g, self, out);
  } else {
    out[0] = select(at.self, part, zero);
  }
  out[1] = select(at.other, part, zero);
}

template <RuleName rule, bool variant, typename M>
CLAMPGRAD_RULE PairMasks<M> masks_in(
    Rule<2, rule, variant>, const M (&bits)[2], bool takes_larger) {
  const M self = bits[0], other = bits[1];
  if constexpr (is_pseudo(rule)) { // which records no tie
    return {self, other, M(), takes_larger};
  } else {
    const M nan = negate<M>(self | other) & broadcast<M>(variant);
    return {M(self | nan), M(other | nan), M(self & other), takes_larger};
  }
}

} // namespace
} // namespace clampgrad::CLAMPGRAD_INSTANCE
