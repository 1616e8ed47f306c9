// Shares on the GPU: one pass forward for the result and the bits, one backward for all gradients.

#include "kernels/cuda/dispatch.cuh"

namespace clampgrad::cuda {
namespace {

template <bool greater_wins, bool nan_loses, typename Element>
struct EncodePairOp {
  using E = Element;
  using V = typename E::Lane;
  static constexpr int kIn = 2, kPlanes = 2;
  PairCodes codes;

  CLAMPGRAD_HOST_DEVICE int operator()(const V (&in)[2], V& y) const {
    const auto pair =
        pair_shares<greater_wins, nan_loses>(compared<E>(in[0]), compared<E>(in[1]), codes);
    y = pair.takes_self ? in[0] : in[1];
    return pair.shares.self | pair.shares.other << 1;
  }
};

template <TripleRule rule, typename Element>
struct EncodeTripleOp {
  using E = Element;
  using V = typename E::Lane;
  static constexpr int kIn = 3, kPlanes = 3;
  int differentiated;

  CLAMPGRAD_HOST_DEVICE int operator()(const V (&in)[3], V& y) const {
    const auto x = compared<E>(in[0]), lo = compared<E>(in[1]), hi = compared<E>(in[2]);
    y = clamped(in[0], in[1], in[2], x, lo, hi);
    const auto triple = encode_triple<rule>(x, lo, hi, compared<E>(y), differentiated);
    return triple.x | triple.lo << 1 | triple.hi << 2;
  }
};

template <Sharing sharing, typename Element>
struct DecodePairOp {
  using E = Element;
  using V = typename E::Lane;
  static constexpr int kOut = 2, kPlanes = 2;
  bool clamps_from_below;

  CLAMPGRAD_HOST_DEVICE void operator()(V g, int code, V (&out)[2]) const {
    const auto of =
        decode_pair<sharing, E>(g, (code & kSelf) != 0, (code & kOther) != 0, clamps_from_below);
    out[0] = of.self;
    out[1] = of.other;
  }
};

template <Sharing sharing, typename Element>
struct DecodeTripleOp {
  using E = Element;
  using V = typename E::Lane;
  static constexpr int kOut = 3, kPlanes = 3;

  CLAMPGRAD_HOST_DEVICE void operator()(V g, int code, V (&out)[3]) const {
    const Triple<bool> bits = {(code & kX) != 0, (code & kLo) != 0, (code & kHi) != 0};
    const auto of = decode_triple<sharing, E>(g, bits);
    out[0] = of.x;
    out[1] = of.lo;
    out[2] = of.hi;
  }
};

template <typename F>
void with_bool(bool value, F f) {
  value ? f(std::true_type()) : f(std::false_type());
}

} // namespace

void pair_encode(const Forward<2>& m, bool greater_wins, bool nan_loses, PairCodes codes) {
  dispatch(m.dtype, "maximum", [&](auto element) {
    using T = decltype(element);
    with_bool(greater_wins, [&](auto greater) {
      with_bool(nan_loses, [&](auto loses) {
        using Op = EncodePairOp<decltype(greater)::value, decltype(loses)::value, ElementOf<T>>;
        launch_encode(m, Op{codes});
      });
    });
  });
}

void pair_decode(const Backward<2>& m, Sharing sharing, bool clamps_from_below) {
  dispatch(m.dtype, "maximum_backward", [&](auto element) {
    using T = decltype(element);
    with_constant<kSharings>(sharing, [&](auto constant) {
      launch_decode(m, DecodePairOp<decltype(constant)::value, ElementOf<T>>{clamps_from_below});
    });
  });
}

void triple_encode(const Forward<3>& m, TripleRule rule, int differentiated) {
  dispatch(m.dtype, "clamp", [&](auto element) {
    using T = decltype(element);
    with_constant<kTripleRules>(rule, [&](auto constant) {
      launch_encode(m, EncodeTripleOp<decltype(constant)::value, ElementOf<T>>{differentiated});
    });
  });
}

void triple_decode(const Backward<3>& m, Sharing sharing) {
  dispatch(m.dtype, "clamp_backward", [&](auto element) {
    using T = decltype(element);
    with_constant<kSharings>(sharing, [&](auto constant) {
      launch_decode(m, DecodeTripleOp<decltype(constant)::value, ElementOf<T>>());
    });
  });
}

} // namespace clampgrad::cuda
