// What a kernel does to one element (CUDA) or vector (CPU), by the rules. A forward makes the
// result and the bits from its inputs, a backward the gradients from a gradient and the bits.
// with_op() gives a call its Op.

namespace clampgrad::CLAMPGRAD_INSTANCE {
namespace {

template <typename Of, typename Element, int bits>
struct Op {
  using Call = Of;
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
    number_bits(number_masks<format, has_lo, has_hi>(key, comparable, keys, result), bits);
  }
};

// f(Constant<has_lo>(), Constant<has_hi>(), the bounds, their keys).
template <typename E, typename F>
void with_bounds_of(const NumberValues& call, const F& f) {
  using L = typename E::Lane;
  using V = decltype(splat(L()));
  Bounds<V> bounds = {splat(static_cast<L>(call.lo)), splat(static_cast<L>(call.hi))};
  const Bounds<KeyOf<E, V>> keys = {E::key(bounds.lo), E::key(bounds.hi)};
  // clamp gives hi where lo is greater. The keys stay unchanged, so x == lo is still a tie.
  if (call.has_hi) {
    bounds.lo = select(lt(keys.hi, keys.lo), bounds.hi, bounds.lo);
  }
  with_bounds(call.has_lo, call.has_hi, [&](auto lo, auto hi) { return f(lo, hi, bounds, keys); });
}

template <typename E, typename F>
void with_op(const NumberValues& call, const F& run) {
  with_bounds_of<E>(call, [&](auto lo, auto hi, const auto& bounds, const auto& keys) {
    constexpr bool has_lo = decltype(lo)::value, has_hi = decltype(hi)::value;
    using V = std::decay_t<decltype(bounds.lo)>;
    run(NumberValuesOp<has_lo, has_hi, E, V>{{}, bounds, keys});
  });
}

template <typename E, typename F>
void with_op(const NumberForward& call, const F& run) {
  with_bounds_of<E>(call, [&](auto lo, auto hi, const auto& bounds, const auto& keys) {
    constexpr bool has_lo = decltype(lo)::value, has_hi = decltype(hi)::value;
    using V = std::decay_t<decltype(bounds.lo)>;
    with_constant<kGradients>(call.gradient, [&](auto gradient) {
      constexpr BitFormat format = format_of(decltype(gradient)::value, 1);
      run(NumberForwardOp<format, has_lo, has_hi, E, V>{{}, bounds, keys});
    });
  });
}

// Which of the two, and for fmax what the C library makes of it.
template <bool skips_nan, typename E, typename V>
CLAMPGRAD_RULE V chosen(const V (&in)[2], Mask<KeyOf<E, V>> takes_self) {
  const V one = select(takes_self, in[0], in[1]);
  if constexpr (skips_nan) {
    return E::fmax(in, one);
  } else {
    return one;
  }
}

template <bool larger, bool skips_nan, bool tie_takes_last, typename E>
struct PairValuesOp : Op<TensorValues<2>, E, 0> {
  template <typename V>
  CLAMPGRAD_RULE void operator()(const V (&in)[2], V (&out)[1]) const {
    const auto self = compared<E>(in[0]), other = compared<E>(in[1]);
    out[0] = chosen<skips_nan, E>(in, takes_self(self, other, larger, skips_nan, tie_takes_last));
  }
};

template <typename E, typename F>
void with_op(const TensorValues<2>& call, const F& run) {
  with_constant<2>(takes_larger(call.op), [&](auto larger) {
    with_constant<2>(skips_nan(call.op), [&](auto skips) {
      with_constant<2>(call.tie_takes_last, [&](auto last) {
        constexpr bool is_larger = decltype(larger)::value, skips_nan = decltype(skips)::value;
        run(PairValuesOp<is_larger, skips_nan, decltype(last)::value, E>());
      });
    });
  });
}

template <bool takes_larger, bool skips_nan, typename E>
struct PairForwardOp : Op<TensorForward<2>, E, 2> {
  PairRule rule;

  template <typename V>
  CLAMPGRAD_RULE void operator()(const V (&in)[2], Mask<V> (&bits)[2], V (&out)[1]) const {
    const auto self = compared<E>(in[0]), other = compared<E>(in[1]);
    const auto pair = pair_masks(self, other, rule, takes_larger, skips_nan);
    out[0] = chosen<skips_nan, E>(in, pair.takes_self);
    bits[0] = pair.self;
    bits[1] = pair.other;
  }
};

template <typename E, typename F>
void with_op(const TensorForward<2>& call, const F& run) {
  const auto rule = recorded_pair_rule(call.op, call.gradient, call.differentiated);
  with_constant<2>(takes_larger(call.op), [&](auto larger) {
    with_constant<2>(skips_nan(call.op), [&](auto skips) {
      run(PairForwardOp<decltype(larger)::value, decltype(skips)::value, E>{{}, rule});
    });
  });
}

template <bool tie_takes_last, typename E>
struct TripleValuesOp : Op<TensorValues<3>, E, 0> {
  template <typename V>
  CLAMPGRAD_RULE void operator()(const V (&in)[3], V (&out)[1]) const {
    const auto x = compared<E>(in[0]), lo = compared<E>(in[1]), hi = compared<E>(in[2]);
    out[0] = clamped<tie_takes_last>(in[0], in[1], in[2], x, lo, hi);
  }
};

template <typename E, typename F>
void with_op(const TensorValues<3>& call, const F& run) {
  with_constant<2>(
      call.tie_takes_last, [&](auto last) { run(TripleValuesOp<decltype(last)::value, E>()); });
}

template <BitFormat format, typename E>
struct TripleForwardOp : Op<TensorForward<3>, E, 3> {
  int differentiated;

  template <typename V>
  CLAMPGRAD_RULE void operator()(const V (&in)[3], Mask<V> (&bits)[3], V (&out)[1]) const {
    const auto x = compared<E>(in[0]), lo = compared<E>(in[1]), hi = compared<E>(in[2]);
    out[0] = clamped(in[0], in[1], in[2], x, lo, hi);
    const auto result = compared<E>(out[0]);
    triple_bits<format>(triple_masks<format>(x, lo, hi, result, differentiated), bits);
  }
};

template <typename E, typename F>
void with_op(const TensorForward<3>& call, const F& run) {
  with_constant<kGradients>(call.gradient, [&](auto gradient) {
    constexpr BitFormat format = format_of(decltype(gradient)::value, 3);
    run(TripleForwardOp<format, E>{{}, call.differentiated});
  });
}

template <typename Rule, typename E>
struct BackwardOp : Op<Backward<Rule::n>, E, Rule::bits> {
  bool takes_larger; // of two Tensors

  template <typename V>
  CLAMPGRAD_RULE void operator()(
      const V (&in)[1], const Mask<V> (&bits)[Rule::bits], V (&out)[Rule::n]) const {
    share<Rule, E>(in[0], masks_in(Rule(), bits, takes_larger), out);
  }
};

template <typename E, size_t n, typename F>
void with_op(const Backward<n>& call, const F& run) {
  with_rule<n>(
      call.convention,
      [&](auto rule) { run(BackwardOp<decltype(rule), E>{{}, takes_larger(call.op)}); },
      call.op);
}

} // namespace
} // namespace clampgrad::CLAMPGRAD_INSTANCE
