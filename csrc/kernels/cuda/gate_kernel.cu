// Gates on the GPU: one pass forward, one pass backward.

#include "kernels/cuda/dispatch.cuh"

#include <torch/headeronly/version.h>

namespace clampgrad::cuda {
namespace {

// The pseudo-gradients record the same: where x lies.
constexpr Gate encoded_as(Gate gate) {
  return is_linear(gate) ? gate : Gate::with_grad;
}

// Up to 2.12 torch.clamp takes max and min on the GPU, which make +0 greater than -0; since then it
// compares, as on the CPU (pytorch/pytorch#185354).
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13
CLAMPGRAD_HOST_DEVICE float raised(float x, float lo) {
  return fmaxf(x, lo);
}
CLAMPGRAD_HOST_DEVICE double raised(double x, double lo) {
  return fmax(x, lo);
}
CLAMPGRAD_HOST_DEVICE float lowered(float x, float hi) {
  return fminf(x, hi);
}
CLAMPGRAD_HOST_DEVICE double lowered(double x, double hi) {
  return fmin(x, hi);
}

template <bool has_lo, bool has_hi, typename T>
CLAMPGRAD_HOST_DEVICE T clamped(T value, Key<T> key, const Bounds<Key<T>>& keys) {
  const auto over = has_lo ? raised(key, keys.lo) : key;
  const auto between = has_hi ? lowered(over, keys.hi) : over;
  return key == key ? static_cast<T>(between) : value;
}
#else
template <bool has_lo, bool has_hi, typename T>
CLAMPGRAD_HOST_DEVICE T clamped(T value, Key<T> key, const Bounds<Key<T>>& keys) {
  const Bounds<T> values = {static_cast<T>(keys.lo), static_cast<T>(keys.hi)};
  return clamp_value<has_lo, has_hi>(value, key, true, values, keys);
}
#endif

// Comparisons of Key are false at NaN, so that encode() need not be told.
template <Gate gate, bool has_lo, bool has_hi, typename T>
struct EncodeGateOp {
  static constexpr int kIn = 1, kPlanes = planes(gate);
  Bounds<Key<T>> keys;

  CLAMPGRAD_HOST_DEVICE int operator()(const T (&in)[1], T& y) const {
    const auto x = key_of(in[0]);
    y = clamped<has_lo, has_hi>(in[0], x, keys);
    return encode<gate, has_lo, has_hi>(x, true, keys);
  }
};

template <Gate gate, typename T>
struct DecodeGateOp {
  static constexpr int kOut = 1, kPlanes = planes(gate);

  CLAMPGRAD_HOST_DEVICE void operator()(T g, int code, T (&out)[1]) const {
    out[0] = decode<gate>(g, code);
  }
};

template <bool has_lo, bool has_hi, typename T>
struct SelectOp {
  static constexpr int kIn = 2, kPlanes = 0;
  Bounds<Key<T>> keys;

  CLAMPGRAD_HOST_DEVICE int operator()(const T (&in)[2], T& dx) const {
    const int code = encode<Gate::strict, has_lo, has_hi>(key_of(in[1]), true, keys);
    dx = decode<Gate::strict>(in[0], code);
    return 0;
  }
};

// A code a byte.
__global__ void __launch_bounds__(kThreads)
    codes_kernel(const uint64_t* bits, uint8_t* codes, int64_t n, int planes) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) {
    int code = 0;
    for (int p = 0; p < planes; ++p) {
      code |= static_cast<int>(bits[p * words(n) + i / kWord] >> (i % kWord) & 1) << p;
    }
    codes[i] = static_cast<uint8_t>(code);
  }
}

// f(gate) with the gate as a type.
template <typename F>
void with_gate(Gate gate, F f) {
  switch (gate) {
    case Gate::strict:
      return f(Constant<Gate::strict>());
    case Gate::inclusive:
      return f(Constant<Gate::inclusive>());
    case Gate::half:
      return f(Constant<Gate::half>());
    case Gate::with_grad:
      return f(Constant<Gate::with_grad>());
    case Gate::with_grad_maximize:
      return f(Constant<Gate::with_grad_maximize>());
    case Gate::restoring:
      return f(Constant<Gate::restoring>());
    case Gate::restoring_maximize:
      return f(Constant<Gate::restoring_maximize>());
  }
}

// A bound as it compares: rounded to T, but out of the range that T is computed in, as torch.clamp
// converts it on the GPU. Beyond that it raises.
template <typename T>
Key<T> key_of_bound(const Bound& bound) {
  return bound ? key_of(static_cast<T>(bound->to<Key<T>>())) : Key<T>(0);
}

// f(keys, has_lo, has_hi)
template <typename T, typename F>
void with_bounds(const Bound& min, const Bound& max, F f) {
  const Bounds<Key<T>> keys = {key_of_bound<T>(min), key_of_bound<T>(max)};
  if (min && max) {
    f(keys, std::true_type(), std::true_type());
  } else if (min) {
    f(keys, std::true_type(), std::false_type());
  } else {
    f(keys, std::false_type(), std::true_type());
  }
}

} // namespace

void gate_encode(
    const Flat& flat,
    const void* x,
    void* y,
    uint64_t* bits,
    const Bound& min,
    const Bound& max,
    Gate gate) {
  dispatch(flat.dtype, "clamp", [&](auto element) {
    using T = decltype(element);
    with_bounds<T>(min, max, [&](const auto& keys, auto has_lo, auto has_hi) {
      with_gate(encoded_as(gate), [&](auto constant) {
        // Of the pseudo-gradients only one is asked for here.
        constexpr Gate g = encoded_as(decltype(constant)::value);
        using Op = EncodeGateOp<g, decltype(has_lo)::value, decltype(has_hi)::value, T>;
        launch_encode<T>(flat, Op{keys}, y, bits, x);
      });
    });
  });
}

void gate_decode(const Flat& flat, const void* g, const uint64_t* bits, void* dx, Gate gate) {
  dispatch(flat.dtype, "clamp_backward", [&](auto element) {
    using T = decltype(element);
    with_gate(gate, [&](auto constant) {
      launch_decode<T>(flat, DecodeGateOp<decltype(constant)::value, T>(), g, bits, dx);
    });
  });
}

void gate_select(
    const Flat& flat, const void* g, const void* x, void* dx, const Bound& min, const Bound& max) {
  dispatch(flat.dtype, "clamp_mingrad_backward", [&](auto element) {
    using T = decltype(element);
    with_bounds<T>(min, max, [&](const auto& keys, auto has_lo, auto has_hi) {
      using Op = SelectOp<decltype(has_lo)::value, decltype(has_hi)::value, T>;
      launch_encode<T>(flat, Op{keys}, dx, nullptr, g, x);
    });
  });
}

void unpack_codes(const Flat& flat, const uint64_t* bits, uint8_t* codes, int planes) {
  launch(flat, kThreads, codes_kernel, bits, codes, flat.n, planes);
}

} // namespace clampgrad::cuda
