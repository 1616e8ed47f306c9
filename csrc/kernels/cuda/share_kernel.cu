// Shares on the GPU: one pass forward for the result and the bits, one backward for all gradients.

#include "kernels/cuda/dispatch.cuh"

namespace clampgrad::cuda {
namespace {

template <typename T>
CLAMPGRAD_HOST_DEVICE Compared<Key<T>> compared(T x) {
  const auto key = key_of(x);
  return {key, key == key};
}

template <bool greater_wins, bool nan_loses, typename T>
struct EncodePairOp {
  static constexpr int kIn = 2, kPlanes = 2;
  PairCodes codes;

  CLAMPGRAD_HOST_DEVICE int operator()(const T (&in)[2], T& y) const {
    const auto choice =
        encode_pair<greater_wins, nan_loses>(compared(in[0]), compared(in[1]), codes);
    y = choice.takes_self ? in[0] : in[1];
    return choice.code;
  }
};

template <Rule rule, typename T>
struct EncodeTripleOp {
  static constexpr int kIn = 3, kPlanes = 3;
  int differentiated;

  CLAMPGRAD_HOST_DEVICE int operator()(const T (&in)[3], T& y) const {
    const auto x = compared(in[0]), lo = compared(in[1]), hi = compared(in[2]);
    y = clamp_value(in[0], in[1], in[2], x, lo, hi);
    return encode_triple<rule>(x, lo, hi, differentiated);
  }
};

template <Sharing sharing, typename T>
struct DecodePairOp {
  static constexpr int kOut = 2, kPlanes = 2;
  bool clamps_from_below;

  CLAMPGRAD_HOST_DEVICE void operator()(T g, int code, T (&out)[2]) const {
    decode_pair<sharing>(g, code, clamps_from_below, out[0], out[1]);
  }
};

template <Sharing sharing, typename T>
struct DecodeTripleOp {
  static constexpr int kOut = 3, kPlanes = 3;

  CLAMPGRAD_HOST_DEVICE void operator()(T g, int code, T (&out)[3]) const {
    decode_triple<sharing>(g, code, out[0], out[1], out[2]);
  }
};

template <typename F>
void with_rule(Rule rule, F f) {
  switch (rule) {
    case Rule::min_norm:
      return f(Constant<Rule::min_norm>());
    case Rule::inclusive:
      return f(Constant<Rule::inclusive>());
    case Rule::joint:
      return f(Constant<Rule::joint>());
    case Rule::half:
      return f(Constant<Rule::half>());
    case Rule::pseudo:
      return f(Constant<Rule::pseudo>());
  }
}

template <typename F>
void with_sharing(Sharing sharing, F f) {
  switch (sharing) {
    case Sharing::equal:
      return f(Constant<Sharing::equal>());
    case Sharing::nan_to_both:
      return f(Constant<Sharing::nan_to_both>());
    case Sharing::nested:
      return f(Constant<Sharing::nested>());
    case Sharing::nan_to_ends:
      return f(Constant<Sharing::nan_to_ends>());
    case Sharing::with_grad:
      return f(Constant<Sharing::with_grad>());
    case Sharing::with_grad_maximize:
      return f(Constant<Sharing::with_grad_maximize>());
    case Sharing::restoring:
      return f(Constant<Sharing::restoring>());
    case Sharing::restoring_maximize:
      return f(Constant<Sharing::restoring_maximize>());
    case Sharing::straight_through:
      return f(Constant<Sharing::straight_through>());
  }
}

template <typename F>
void with_bool(bool value, F f) {
  value ? f(std::true_type()) : f(std::false_type());
}

} // namespace

void pair_encode(
    const Flat& flat,
    const void* self,
    const void* other,
    void* y,
    uint64_t* bits,
    bool greater_wins,
    bool nan_loses,
    PairCodes codes) {
  dispatch(flat.dtype, "maximum", [&](auto element) {
    using T = decltype(element);
    with_bool(greater_wins, [&](auto greater) {
      with_bool(nan_loses, [&](auto loses) {
        using Op = EncodePairOp<decltype(greater)::value, decltype(loses)::value, T>;
        launch_encode<T>(flat, Op{codes}, y, bits, self, other);
      });
    });
  });
}

void triple_encode(
    const Flat& flat,
    const void* x,
    const void* lo,
    const void* hi,
    void* y,
    uint64_t* bits,
    Rule rule,
    int differentiated) {
  dispatch(flat.dtype, "clamp", [&](auto element) {
    using T = decltype(element);
    with_rule(rule, [&](auto constant) {
      using Op = EncodeTripleOp<decltype(constant)::value, T>;
      launch_encode<T>(flat, Op{differentiated}, y, bits, x, lo, hi);
    });
  });
}

void pair_decode(
    const Flat& flat,
    const void* g,
    const uint64_t* bits,
    void* of_self,
    void* of_other,
    Sharing sharing,
    bool clamps_from_below) {
  dispatch(flat.dtype, "maximum_backward", [&](auto element) {
    using T = decltype(element);
    with_sharing(sharing, [&](auto constant) {
      using Op = DecodePairOp<decltype(constant)::value, T>;
      launch_decode<T>(flat, Op{clamps_from_below}, g, bits, of_self, of_other);
    });
  });
}

void triple_decode(
    const Flat& flat,
    const void* g,
    const uint64_t* bits,
    void* of_x,
    void* of_lo,
    void* of_hi,
    Sharing sharing) {
  dispatch(flat.dtype, "clamp_backward", [&](auto element) {
    using T = decltype(element);
    with_sharing(sharing, [&](auto constant) {
      using Op = DecodeTripleOp<decltype(constant)::value, T>;
      launch_decode<T>(flat, Op(), g, bits, of_x, of_lo, of_hi);
    });
  });
}

} // namespace clampgrad::cuda
