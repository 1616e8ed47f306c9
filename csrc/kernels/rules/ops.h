// The operations of kernels on one element (CUDA) or vector (CPU), by the rules. A forward computes
// the result and the bits from its inputs, a backward the gradients from a gradient and the bits.
// dispatch_op() gives a call its Op.

namespace clampgrad::CLAMPGRAD_INSTANCE {
namespace {

template <typename CallType, typename Element, int bits>
struct Op {
  using Call = CallType;
  using E = Element;
  static constexpr int kBits = bits; // of one element
};

template <bool has_lo, bool has_hi, typename E, typename V>
struct NumberValuesOp : Op<NumberValues, E, 0> {
  Bounds<V> values;
  Bounds<KeyOf<E, V>> keys;

  CLAMPGRAD_RULE void operator()(const V (&in)[1], V (&out)[1]) const {
    out[0] =
        E::template clamp<has_lo, has_hi>(in[0], E::key(in[0]), E::comparable(in[0]), values, keys);
  }
};

template <BitFormat format, bool has_lo, bool has_hi, typename E, typename V>
struct NumberForwardOp : Op<NumberForward, E, bits_per_element(format, 1)> {
  Bounds<V> values;
  Bounds<KeyOf<E, V>> keys;

  CLAMPGRAD_RULE void operator()(
      const V (&in)[1], Mask<V> (&bits)[bits_per_element(format, 1)], V (&out)[1]) const {
    const auto key = E::key(in[0]);
    const auto comparable = E::comparable(in[0]);
    out[0] = E::template clamp<has_lo, has_hi>(in[0], key, comparable, values, keys);
    auto result = key; // of out[0]
    if constexpr (std::is_same_v<V, decltype(result)>) {
      result = out[0];
    } else {
      result = clamp_value<has_lo, has_hi>(key, key, comparable, keys, keys);
    }
    pack_number_bits(number_masks<format, has_lo, has_hi>(key, comparable, keys, result), bits);
  }
};

// Calls f(Constant<has_lo>(), Constant<has_hi>(), the bounds, their keys).
template <typename E, typename F>
void dispatch_number_bounds(const NumberValues& call, const F& f) {
  using L = typename E::Lane;
  using V = decltype(splat(L()));
  Bounds<V> bounds = {splat(static_cast<L>(call.lo)), splat(static_cast<L>(call.hi))};
  const Bounds<KeyOf<E, V>> keys = {E::key(bounds.lo), E::key(bounds.hi)};
  // clamp gives hi where lo is greater. The keys stay unchanged, so x == lo is still a tie.
  if (call.has_hi) {
    bounds.lo = select(lt(keys.hi, keys.lo), bounds.hi, bounds.lo);
  }
  dispatch_bounds(
      call.has_lo, call.has_hi, [&](auto lo, auto hi) { return f(lo, hi, bounds, keys); });
}

template <typename E, typename F>
void dispatch_op(const NumberValues& call, const F& run) {
  dispatch_number_bounds<E>(call, [&](auto lo, auto hi, const auto& bounds, const auto& keys) {
    constexpr bool has_lo = decltype(lo)::value, has_hi = decltype(hi)::value;
    using V = std::decay_t<decltype(bounds.lo)>;
    run(NumberValuesOp<has_lo, has_hi, E, V>{{}, bounds, keys});
  });
}

template <typename E, typename F>
void dispatch_op(const NumberForward& call, const F& run) {
  dispatch_number_bounds<E>(call, [&](auto lo, auto hi, const auto& bounds, const auto& keys) {
    constexpr bool has_lo = decltype(lo)::value, has_hi = decltype(hi)::value;
    using V = std::decay_t<decltype(bounds.lo)>;
    dispatch_constant<kGradientCount>(call.gradient, [&](auto gradient) {
      constexpr BitFormat format = bit_format_of(decltype(gradient)::value, 1);
      run(NumberForwardOp<format, has_lo, has_hi, E, V>{{}, bounds, keys});
    });
  });
}

// Selects one of the two values, for fmax and fmin as the C library does.
template <bool skips_nan, typename E, typename V>
CLAMPGRAD_RULE V select_value(const V (&in)[2], Mask<KeyOf<E, V>> selects_self) {
  const V selected = select(selects_self, in[0], in[1]);
  if constexpr (skips_nan) {
    return E::fmax(in, selected);
  } else {
    return selected;
  }
}

template <bool selects_larger, bool skips_nan, bool tie_takes_last, typename E>
struct PairValuesOp : Op<TensorValues<2>, E, 0> {
  template <typename V>
  CLAMPGRAD_RULE void operator()(const V (&in)[2], V (&out)[1]) const {
    const auto self = make_comparand<E>(in[0]), other = make_comparand<E>(in[1]);
    out[0] = select_value<skips_nan, E>(
        in, selects_self(self, other, selects_larger, skips_nan, tie_takes_last));
  }
};

template <typename E, typename F>
void dispatch_op(const TensorValues<2>& call, const F& run) {
  dispatch_constant<2>(selects_larger(call.op), [&](auto is_max) {
    dispatch_constant<2>(skips_nan(call.op), [&](auto skips) {
      dispatch_constant<2>(call.tie_takes_last, [&](auto last) {
        using Max = decltype(is_max);
        run(PairValuesOp<Max::value, decltype(skips)::value, decltype(last)::value, E>());
      });
    });
  });
}

template <bool selects_larger, bool skips_nan, typename E>
struct PairForwardOp : Op<TensorForward<2>, E, 2> {
  PairRule rule;

  template <typename V>
  CLAMPGRAD_RULE void operator()(const V (&in)[2], Mask<V> (&bits)[2], V (&out)[1]) const {
    const auto self = make_comparand<E>(in[0]), other = make_comparand<E>(in[1]);
    const auto pair = pair_masks(self, other, rule, selects_larger, skips_nan);
    out[0] = select_value<skips_nan, E>(in, pair.selects_self);
    bits[0] = pair.self;
    bits[1] = pair.other;
  }
};

template <typename E, typename F>
void dispatch_op(const TensorForward<2>& call, const F& run) {
  const auto rule = forward_pair_rule(call.op, call.gradient, call.differentiated_mask);
  dispatch_constant<2>(selects_larger(call.op), [&](auto is_max) {
    dispatch_constant<2>(skips_nan(call.op), [&](auto skips) {
      run(PairForwardOp<decltype(is_max)::value, decltype(skips)::value, E>{{}, rule});
    });
  });
}

template <bool tie_takes_last, typename E>
struct TripleValuesOp : Op<TensorValues<3>, E, 0> {
  template <typename V>
  CLAMPGRAD_RULE void operator()(const V (&in)[3], V (&out)[1]) const {
    const auto x = make_comparand<E>(in[0]), lo = make_comparand<E>(in[1]),
               hi = make_comparand<E>(in[2]);
    out[0] = clamp_values<tie_takes_last>(in[0], in[1], in[2], x, lo, hi);
  }
};

template <typename E, typename F>
void dispatch_op(const TensorValues<3>& call, const F& run) {
  dispatch_constant<2>(
      call.tie_takes_last, [&](auto last) { run(TripleValuesOp<decltype(last)::value, E>()); });
}

template <BitFormat format, typename E>
struct TripleForwardOp : Op<TensorForward<3>, E, 3> {
  int differentiated_mask;

  template <typename V>
  CLAMPGRAD_RULE void operator()(const V (&in)[3], Mask<V> (&bits)[3], V (&out)[1]) const {
    const auto x = make_comparand<E>(in[0]), lo = make_comparand<E>(in[1]),
               hi = make_comparand<E>(in[2]);
    out[0] = clamp_values(in[0], in[1], in[2], x, lo, hi);
    const auto result = make_comparand<E>(out[0]);
    pack_triple_bits<format>(triple_masks<format>(x, lo, hi, result, differentiated_mask), bits);
  }
};

template <typename E, typename F>
void dispatch_op(const TensorForward<3>& call, const F& run) {
  dispatch_constant<kGradientCount>(call.gradient, [&](auto gradient) {
    constexpr BitFormat format = bit_format_of(decltype(gradient)::value, 3);
    run(TripleForwardOp<format, E>{{}, call.differentiated_mask});
  });
}

template <typename Rule, typename E>
struct BackwardOp : Op<Backward<Rule::kArguments>, E, Rule::kBits> {
  bool selects_larger; // of two Tensors

  template <typename V>
  CLAMPGRAD_RULE void operator()(
      const V (&in)[1], const Mask<V> (&bits)[Rule::kBits], V (&out)[Rule::kArguments]) const {
    compute_shares<Rule, E>(in[0], unpack_masks(Rule(), bits, selects_larger), out);
  }
};

template <typename E, size_t n, typename F>
void dispatch_op(const Backward<n>& call, const F& run) {
  dispatch_rule<n>(
      call.convention,
      [&](auto rule) { run(BackwardOp<decltype(rule), E>{{}, selects_larger(call.op)}); },
      call.op);
}

} // namespace
} // namespace clampgrad::CLAMPGRAD_INSTANCE
