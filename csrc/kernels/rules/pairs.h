// What the fused kernels do at one place: at an element (CUDA), or at a vector of elements (the
// CPU). An Op for a call that encodes makes of its inputs the bits that are recorded, one per
// plane, and the result; for one that decodes, of a gradient and these bits the gradients.
// with_op() takes a call (kernels/call.h) to its Op. Comes after all.h, and after splat(), which
// makes a V of a lane.

namespace clampgrad::CLAMPGRAD_ISA {
namespace {

template <typename T>
struct ElementOf : Real<T> {};
template <>
struct ElementOf<c10::Half> : Short<10> {};
template <>
struct ElementOf<c10::BFloat16> : Short<7> {};

template <typename Of, typename Element, int planes>
struct Op {
  using Call = Of;
  using E = Element;
  static constexpr int kPlanes = planes;
};

// ---- Numbers for bounds -------------------------------------------------------------------------

// A device whose torch.clamp differs has one of its own.
#if !defined(CLAMPGRAD_CLAMP)
#define CLAMPGRAD_CLAMP clamp_value
#endif

template <Gate gate, bool has_lo, bool has_hi, typename E, typename V>
struct EncodeGate : Op<GateEncode, E, planes(gate)> {
  Bounds<V> values;
  Bounds<KeyOf<E, V>> keys;

  CLAMPGRAD_HOST_DEVICE void operator()(
      const V (&in)[1], Mask<V> (&bits)[planes(gate)], V (&out)[1]) const {
    const auto key = E::key(in[0]);
    const auto comparable = E::comparable(in[0]);
    out[0] = CLAMPGRAD_CLAMP<has_lo, has_hi>(in[0], key, comparable, values, keys);
    const auto code = encode<gate, has_lo, has_hi>(key, comparable, keys);
    bits[0] = code.first;
    if constexpr (planes(gate) == 2) {
      bits[1] = code.second;
    }
  }
};

template <typename E, typename F>
void with_op(const GateEncode& call, const F& run) {
  using L = typename E::Lane;
  using V = decltype(splat(L()));
  Bounds<V> bounds = {splat(static_cast<L>(call.lo)), splat(static_cast<L>(call.hi))};
  const Bounds<KeyOf<E, V>> keys = {E::key(bounds.lo), E::key(bounds.hi)};
  if (call.has_hi) { // what is below lo becomes hi where that is less
    bounds.lo = select(lt(keys.hi, keys.lo), bounds.hi, bounds.lo);
  }
  with_bounds(call.has_lo, call.has_hi, [&](auto lo, auto hi) {
    with_constant<kGates>(encoded_as(call.gate), [&](auto constant) {
      constexpr Gate gate = encoded_as(decltype(constant)::value);
      run(EncodeGate<gate, decltype(lo)::value, decltype(hi)::value, E, V>{{}, bounds, keys});
    });
  });
}

template <Gate gate, typename E>
struct DecodeGate : Op<GateDecode, E, planes(gate)> {
  template <typename V>
  CLAMPGRAD_HOST_DEVICE void operator()(
      const V (&in)[1], const Mask<V> (&bits)[planes(gate)], V (&out)[1]) const {
    Code<Mask<V>> code = {bits[0], Mask<V>()};
    if constexpr (planes(gate) == 2) {
      code.second = bits[1];
    }
    if constexpr (is_linear(gate)) {
      out[0] = weighed<gate, E>(in[0], weight_in<gate>(code));
    } else {
      out[0] = pushed<gate, E>(in[0], position_in(code));
    }
  }
};

template <typename E, typename F>
void with_op(const GateDecode& call, const F& run) {
  with_constant<kGates>(call.gate, [&](auto gate) { run(DecodeGate<decltype(gate)::value, E>{}); });
}

// ---- Two Tensors --------------------------------------------------------------------------------

template <bool greater_wins, bool nan_loses, typename E>
struct EncodePair : Op<PairEncode, E, 2> {
  PairCodes codes;

  template <typename V>
  CLAMPGRAD_HOST_DEVICE void operator()(const V (&in)[2], Mask<V> (&bits)[2], V (&out)[1]) const {
    const auto pair =
        pair_shares<greater_wins, nan_loses>(compared<E>(in[0]), compared<E>(in[1]), codes);
    out[0] = select(pair.takes_self, in[0], in[1]);
#if defined(CLAMPGRAD_SIGNALLED) // a device whose torch.fmax knows signalling NaNs
    if constexpr (nan_loses) {
      out[0] = CLAMPGRAD_SIGNALLED<E>(in, out[0]);
    }
#endif
    bits[0] = pair.shares.self;
    bits[1] = pair.shares.other;
  }
};

template <typename E, typename F>
void with_op(const PairEncode& call, const F& run) {
  with_constant<2>(call.greater_wins, [&](auto greater) {
    with_constant<2>(call.nan_loses, [&](auto loses) {
      run(EncodePair<decltype(greater)::value, decltype(loses)::value, E>{{}, call.codes});
    });
  });
}

template <Sharing sharing, typename E>
struct DecodePair : Op<PairDecode, E, 2> {
  bool clamps_from_below;

  template <typename V>
  CLAMPGRAD_HOST_DEVICE void operator()(
      const V (&in)[1], const Mask<V> (&bits)[2], V (&out)[2]) const {
    const auto among = pair_in<sharing>(bits[0], bits[1]);
    const auto of = shared<E>(in[0], among);
    out[0] = of.self;
    out[1] = of.other;
    if constexpr (is_pseudo(sharing)) {
      out[0] = pushed_by<sharing, E>(
          in[0], position_in_pair(among.self, among.other, clamps_from_below));
    }
  }
};

template <typename E, typename F>
void with_op(const PairDecode& call, const F& run) {
  with_constant<kSharings>(call.sharing, [&](auto sharing) {
    run(DecodePair<of_two(decltype(sharing)::value), E>{{}, call.clamps_from_below});
  });
}

// ---- Three Tensors ------------------------------------------------------------------------------

template <Gradient rule, typename E>
struct EncodeTriple : Op<TripleEncode, E, 3> {
  int differentiated;

  template <typename V>
  CLAMPGRAD_HOST_DEVICE void operator()(const V (&in)[3], Mask<V> (&bits)[3], V (&out)[1]) const {
    const auto x = compared<E>(in[0]), lo = compared<E>(in[1]), hi = compared<E>(in[2]);
    out[0] = clamped(in[0], in[1], in[2], x, lo, hi);
    const auto triple = encode_triple<rule>(x, lo, hi, compared<E>(out[0]), differentiated);
    bits[0] = triple.x;
    bits[1] = triple.lo;
    bits[2] = triple.hi;
  }
};

template <typename E, typename F>
void with_op(const TripleEncode& call, const F& run) {
  with_constant<kGradients>(triple_rule(call.rule), [&](auto rule) {
    run(EncodeTriple<triple_rule(decltype(rule)::value), E>{{}, call.differentiated});
  });
}

template <Sharing sharing, typename E>
struct DecodeTriple : Op<TripleDecode, E, 3> {
  template <typename V>
  CLAMPGRAD_HOST_DEVICE void operator()(
      const V (&in)[1], const Mask<V> (&bits)[3], V (&out)[3]) const {
    const Triple<Mask<V>> code = {bits[0], bits[1], bits[2]};
    if constexpr (is_pseudo(sharing)) {
      const auto at = beyond_in(code);
      const auto bounds = of_bounds<E>(in[0], at);
      out[0] = pushed_by<sharing, E>(in[0], at.x);
      out[1] = bounds.self;
      out[2] = bounds.other;
    } else {
      const auto of = shared<E>(in[0], triple_in<sharing>(code));
      out[0] = of.x;
      out[1] = of.lo;
      out[2] = of.hi;
    }
  }
};

template <typename E, typename F>
void with_op(const TripleDecode& call, const F& run) {
  with_constant<kSharings>(call.sharing, [&](auto sharing) {
    run(DecodeTriple<of_three(decltype(sharing)::value), E>{});
  });
}

} // namespace
} // namespace clampgrad::CLAMPGRAD_ISA
