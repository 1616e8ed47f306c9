// What two Tensors get of a gradient. The kernels keep a bit for each, set where it gets a share.

namespace clampgrad::CLAMPGRAD_INSTANCE {
namespace {

// Which arguments get a share, and where they halve it.
template <typename M>
struct PairMasks {
  M self, other;
  M halved;
};

// Who gets a share, and whether the value of the result is self's.
template <typename M>
struct PairResult {
  PairMasks<M> shares;
  M takes_self;
};

template <bool takes_larger, bool skips_nan, typename K>
CLAMPGRAD_HOST_DEVICE PairResult<Mask<K>> pair_masks(
    const Compared<K>& self, const Compared<K>& other, const PairRule& rule) {
  using M = Mask<K>;
  const auto& larger = takes_larger ? self : other;
  const auto& smaller = takes_larger ? other : self;
  const M wins = lt(smaller, larger), loses = lt(larger, smaller);
  const M wins_or_ties = le(smaller, larger), loses_or_ties = le(larger, smaller);
  M to_self = select(broadcast<M>(rule.tie & kSelf), wins_or_ties, wins);
  M to_other = select(broadcast<M>(rule.tie & kOther), loses_or_ties, loses);
  M nan = negate<M>(wins_or_ties | loses_or_ties);
  M takes_self = M(wins_or_ties | negate<M>(self.number));
  if constexpr (skips_nan) {
    const M other_nan = negate<M>(other.number);
    nan = M(other_nan & negate<M>(self.number));
    to_self = M(to_self | (other_nan & self.number));
    to_other = M(to_other | (other.number & negate<M>(self.number)));
    takes_self = M(wins_or_ties | other_nan);
  }
  return {
      {M(to_self | (nan & broadcast<M>(rule.nan & kSelf))),
       M(to_other | (nan & broadcast<M>(rule.nan & kOther))),
       M(eq(self, other) & broadcast<M>(rule.tie == kBoth))},
      takes_self};
}

// Under a pseudo-gradient, self is the result where it has a share, else beyond the bound.
template <Gradient rule, bool maximize, typename E, typename V>
CLAMPGRAD_HOST_DEVICE void pair_share(
    V g, const PairMasks<Mask<V>>& at, bool takes_larger, V (&out)[2]) {
  using M = Mask<V>;
  const V zero = V(), share = select(at.halved, E::halved(g), g);
  if constexpr (is_pseudo(rule)) {
    const M larger = broadcast<M>(takes_larger);
    const Position<M> self = {at.self, M(at.other & larger), M(at.other & negate<M>(larger))};
    out[0] = number_share<rule, maximize, E>(g, self);
  } else {
    out[0] = select(at.self, share, zero);
  }
  out[1] = select(at.other, share, zero);
}

template <Gradient rule, bool nan_to_both, typename M>
CLAMPGRAD_HOST_DEVICE PairMasks<M> pair_masks_in(const M (&bits)[2]) {
  const M self = bits[0], other = bits[1];
  if constexpr (is_pseudo(rule)) { // which records no tie
    return {self, other, M()};
  } else if constexpr (nan_to_both) {
    const M nan = negate<M>(self | other);
    return {M(self | nan), M(other | nan), M(self & other)};
  } else {
    return {self, other, M(self & other)};
  }
}

template <bool takes_larger, bool skips_nan, typename E>
struct PairForwardOp : Op<PairForward, E, 2> {
  PairRule rule;

  template <typename V>
  CLAMPGRAD_HOST_DEVICE void operator()(const V (&in)[2], Mask<V> (&bits)[2], V (&out)[1]) const {
    const auto pair =
        pair_masks<takes_larger, skips_nan>(compared<E>(in[0]), compared<E>(in[1]), rule);
    out[0] = select(pair.takes_self, in[0], in[1]);
    if constexpr (skips_nan) {
      out[0] = E::fmax(in, out[0]);
    }
    bits[0] = pair.shares.self;
    bits[1] = pair.shares.other;
  }
};

template <typename E, typename F>
void with_op(const PairForward& call, const F& run) {
  auto rule = pair_rule(call.op, call.gradient, call.differentiated);
  if (nan_to_both(call.op, call.gradient)) {
    rule.nan = 0;
  }
  with_constant<2>(takes_larger(call.op), [&](auto larger) {
    with_constant<2>(skips_nan(call.op), [&](auto skips) {
      run(PairForwardOp<decltype(larger)::value, decltype(skips)::value, E>{{}, rule});
    });
  });
}

template <Gradient rule, bool maximize, bool nan_to_both, typename E>
struct PairBackwardOp : Op<PairBackward, E, 2> {
  bool takes_larger;

  template <typename V>
  CLAMPGRAD_HOST_DEVICE void operator()(
      const V (&in)[1], const Mask<V> (&bits)[2], V (&out)[2]) const {
    const auto at = pair_masks_in<rule, nan_to_both>(bits);
    pair_share<rule, maximize, E>(in[0], at, takes_larger, out);
  }
};

// f(Constant<rule>(), Constant<maximize>(), Constant<nan_to_both>())
template <typename F>
auto with_pair_rule(Extremum op, Convention c, const F& f) {
  return with_rule<pair_share_rule>(c, [&](auto rule, auto maximize) {
    if constexpr (is_pseudo(decltype(rule)::value)) {
      return f(rule, maximize, Constant<false>());
    } else {
      return with_constant<2>(
          nan_to_both(op, c.gradient), [&](auto nan) { return f(rule, maximize, nan); });
    }
  });
}

template <typename E, typename F>
void with_op(const PairBackward& call, const F& run) {
  with_pair_rule(call.op, call.convention, [&](auto rule, auto maximize, auto nan) {
    run(PairBackwardOp<decltype(rule)::value, decltype(maximize)::value, decltype(nan)::value, E>{
        {}, takes_larger(call.op)});
  });
}

} // namespace
} // namespace clampgrad::CLAMPGRAD_INSTANCE
