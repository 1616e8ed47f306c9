// Rules for two Tensors. The kernels save a bit for each, set where it gets a share.

namespace clampgrad::CLAMPGRAD_INSTANCE {
namespace {

// Where `self` and `other` get a share, and where it is half of g. `selects_larger`: the operator
// is a maximum. `selects_self`: where the result is self.
template <typename M>
struct PairMasks {
  M self, other, halved;
  bool selects_larger;
  M selects_self;
};

// Returns where the result is self. Of two equal numbers it is self, or the other: this decides
// between +0 and -0.
template <typename K>
CLAMPGRAD_RULE Mask<K> selects_self(
    const Comparand<K>& self,
    const Comparand<K>& other,
    bool selects_larger,
    bool skips_nan,
    bool tie_takes_other = false) {
  const auto& larger = selects_larger ? self : other;
  const auto& smaller = selects_larger ? other : self;
  const auto self_wins = tie_takes_other ? lt(smaller, larger) : le(smaller, larger);
  return Mask<K>(self_wins | logical_not<Mask<K>>(skips_nan ? other.not_nan : self.not_nan));
}

template <typename K>
CLAMPGRAD_RULE PairMasks<Mask<K>> pair_masks(
    const Comparand<K>& self,
    const Comparand<K>& other,
    const PairRule& rule,
    bool selects_larger,
    bool skips_nan) {
  using M = Mask<K>;
  const auto& larger = selects_larger ? self : other;
  const auto& smaller = selects_larger ? other : self;
  const M self_wins = lt(smaller, larger), other_wins = lt(larger, smaller);
  const M self_wins_or_ties = le(smaller, larger), other_wins_or_ties = le(larger, smaller);
  M to_self = select(mask_from_bool<M>(rule.tie_mask != 0), self_wins_or_ties, self_wins);
  M to_other = select(mask_from_bool<M>(rule.tie_mask & kOtherBit), other_wins_or_ties, other_wins);
  M nan = logical_not<M>(self_wins_or_ties | other_wins_or_ties);
  if (skips_nan) {
    const M other_nan = logical_not<M>(other.not_nan);
    nan = M(other_nan & logical_not<M>(self.not_nan));
    to_self = M(to_self | (other_nan & self.not_nan));
    to_other = M(to_other | (other.not_nan & logical_not<M>(self.not_nan)));
  }
  PairMasks<M> at = {};
  at.self = M(
      to_self | (nan & mask_from_bool<M>(rule.nan_mask != 0))); // no rule gives it to `other` alone
  at.other = M(to_other | (nan & mask_from_bool<M>(rule.nan_mask & kOtherBit)));
  at.halved = M(eq(self, other) & mask_from_bool<M>(rule.tie_mask == kBothArgs));
  at.selects_larger = selects_larger;
  at.selects_self = selects_self(self, other, selects_larger, skips_nan);
  return at;
}

// Under a pseudo-gradient, self is the result where it gets a share, else beyond the bound.
template <typename Rule, typename E, typename V, typename Shares>
CLAMPGRAD_RULE void compute_shares(V g, const PairMasks<Mask<V>>& at, Shares& out) {
  using M = Mask<V>;
  const V zero = V(), part = select(at.halved, E::half_of(g), g);
  if constexpr (is_pseudo(Rule::kRule)) {
    const M larger = mask_from_bool<M>(at.selects_larger);
    const Region<M> self = {at.self, M(at.other & larger), M(at.other & logical_not<M>(larger))};
    compute_shares<Rule, E>(g, self, out);
  } else {
    out[0] = select(at.self, part, zero);
  }
  out[1] = select(at.other, part, zero);
}

template <RuleName rule, bool flag, typename M>
CLAMPGRAD_RULE PairMasks<M> unpack_masks(
    Rule<2, rule, flag>, const M (&bits)[2], bool selects_larger) {
  PairMasks<M> at = {};
  at.self = bits[0];
  at.other = bits[1];
  at.selects_larger = selects_larger;
  if constexpr (!is_pseudo(rule)) { // whose bits record ties and NaN, too
    const M nan = logical_not<M>(bits[0] | bits[1]) & mask_from_bool<M>(flag);
    at.self = M(bits[0] | nan);
    at.other = M(bits[1] | nan);
    at.halved = M(bits[0] & bits[1]);
  }
  return at;
}

} // namespace
} // namespace clampgrad::CLAMPGRAD_INSTANCE
