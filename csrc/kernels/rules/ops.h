// What the fused kernels do at one place: at an element (CUDA), or at a vector of elements (the
// CPU). An Op that encodes makes of kIn inputs the result and the bits that are recorded, one per
// plane; an Op that decodes makes of a gradient and these bits kOut gradients. with_*() take the
// arguments of a kernel (kernels/backend.h) to its Op. Comes after all.h.

namespace clampgrad::CLAMPGRAD_ISA {
namespace {

// ---- Numbers for bounds -------------------------------------------------------------------------

// The result. A device whose torch.clamp differs has a struct of its own.
struct ClampByComparison {
  template <bool has_lo, bool has_hi, typename E, typename V, typename K>
  static CLAMPGRAD_HOST_DEVICE V
  clamped(V x, K key, Mask<K> comparable, const Bounds<V>& values, const Bounds<K>& keys) {
    return clamp_value<has_lo, has_hi>(x, key, comparable, values, keys);
  }
};

template <Gate gate, bool has_lo, bool has_hi, typename Clamp, typename Element, typename V>
struct EncodeGate {
  using E = Element;
  static constexpr int kIn = 1, kPlanes = planes(gate);
  Bounds<V> values;
  Bounds<KeyOf<E, V>> keys;

  CLAMPGRAD_HOST_DEVICE void operator()(const V (&in)[1], V& y, Mask<V> (&bits)[kPlanes]) const {
    const auto key = E::key(in[0]);
    const auto comparable = E::comparable(in[0]);
    y = Clamp::template clamped<has_lo, has_hi, E>(in[0], key, comparable, values, keys);
    const auto code = encode<gate, has_lo, has_hi>(key, comparable, keys);
    bits[0] = code.first;
    if constexpr (kPlanes == 2) {
      bits[1] = code.second;
    }
  }
};

template <typename E, typename Clamp, typename V, typename F>
void with_gate_encode(const Bounds<V>& bounds, bool has_lo, bool has_hi, Gate gate, const F& run) {
  with_bounds(has_lo, has_hi, [&](auto lo, auto hi) {
    with_constant<kGates>(encoded_as(gate), [&](auto constant) {
      constexpr Gate gate = encoded_as(decltype(constant)::value);
      using Op = EncodeGate<gate, decltype(lo)::value, decltype(hi)::value, Clamp, E, V>;
      run(Op{bounds, {E::key(bounds.lo), E::key(bounds.hi)}});
    });
  });
}

template <Gate gate, typename Element>
struct DecodeGate {
  using E = Element;
  static constexpr int kOut = 1, kPlanes = planes(gate);

  template <typename V>
  CLAMPGRAD_HOST_DEVICE void operator()(V g, const Mask<V> (&bits)[kPlanes], V (&out)[1]) const {
    out[0] =
        decode<gate, E>(g, Code<Mask<V>>{bits[0], kPlanes == 2 ? bits[kPlanes - 1] : Mask<V>()});
  }
};

template <typename E, typename F>
void with_gate_decode(Gate gate, const F& run) {
  with_constant<kGates>(
      gate, [&](auto constant) { run(DecodeGate<decltype(constant)::value, E>()); });
}

// ---- Two Tensors --------------------------------------------------------------------------------

template <bool greater_wins, bool nan_loses, typename Element>
struct EncodePair {
  using E = Element;
  static constexpr int kIn = 2, kPlanes = 2;
  PairCodes codes;

  template <typename V>
  CLAMPGRAD_HOST_DEVICE void operator()(const V (&in)[2], V& y, Mask<V> (&bits)[2]) const {
    const auto pair =
        pair_shares<greater_wins, nan_loses>(compared<E>(in[0]), compared<E>(in[1]), codes);
    y = select(pair.takes_self, in[0], in[1]);
    bits[0] = pair.shares.self;
    bits[1] = pair.shares.other;
  }
};

template <typename E, typename F>
void with_pair_encode(bool greater_wins, bool nan_loses, PairCodes codes, const F& run) {
  with_constant<2>(greater_wins, [&](auto greater) {
    with_constant<2>(nan_loses, [&](auto loses) {
      run(EncodePair<decltype(greater)::value, decltype(loses)::value, E>{codes});
    });
  });
}

template <Sharing sharing, typename Element>
struct DecodePair {
  using E = Element;
  static constexpr int kOut = 2, kPlanes = 2;
  bool clamps_from_below;

  template <typename V>
  CLAMPGRAD_HOST_DEVICE void operator()(V g, const Mask<V> (&bits)[2], V (&out)[2]) const {
    const auto of = decode_pair<sharing, E>(g, bits[0], bits[1], clamps_from_below);
    out[0] = of.self;
    out[1] = of.other;
  }
};

template <typename E, typename F>
void with_pair_decode(Sharing sharing, bool clamps_from_below, const F& run) {
  with_constant<kSharings>(sharing, [&](auto constant) {
    run(DecodePair<decltype(constant)::value, E>{clamps_from_below});
  });
}

// ---- Three Tensors ------------------------------------------------------------------------------

template <TripleRule rule, typename Element>
struct EncodeTriple {
  using E = Element;
  static constexpr int kIn = 3, kPlanes = 3;
  int differentiated;

  template <typename V>
  CLAMPGRAD_HOST_DEVICE void operator()(const V (&in)[3], V& y, Mask<V> (&bits)[3]) const {
    const auto x = compared<E>(in[0]), lo = compared<E>(in[1]), hi = compared<E>(in[2]);
    y = clamped(in[0], in[1], in[2], x, lo, hi);
    const auto triple = encode_triple<rule>(x, lo, hi, compared<E>(y), differentiated);
    bits[0] = triple.x;
    bits[1] = triple.lo;
    bits[2] = triple.hi;
  }
};

template <typename E, typename F>
void with_triple_encode(TripleRule rule, int differentiated, const F& run) {
  with_constant<kTripleRules>(rule, [&](auto constant) {
    run(EncodeTriple<decltype(constant)::value, E>{differentiated});
  });
}

template <Sharing sharing, typename Element>
struct DecodeTriple {
  using E = Element;
  static constexpr int kOut = 3, kPlanes = 3;

  template <typename V>
  CLAMPGRAD_HOST_DEVICE void operator()(V g, const Mask<V> (&bits)[3], V (&out)[3]) const {
    const auto of = decode_triple<sharing, E>(g, Triple<Mask<V>>{bits[0], bits[1], bits[2]});
    out[0] = of.x;
    out[1] = of.lo;
    out[2] = of.hi;
  }
};

template <typename E, typename F>
void with_triple_decode(Sharing sharing, const F& run) {
  with_constant<kSharings>(
      sharing, [&](auto constant) { run(DecodeTriple<decltype(constant)::value, E>()); });
}

} // namespace
} // namespace clampgrad::CLAMPGRAD_ISA
