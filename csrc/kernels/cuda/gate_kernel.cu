// Gates on the GPU: one pass forward, one pass backward.

#include "kernels/cuda/dispatch.cuh"

#include <torch/headeronly/version.h>

#include <cstring>

namespace clampgrad::cuda {
namespace {

// The pseudo-gradients record the same: where x lies.
constexpr Gate encoded_as(Gate gate) {
  return is_linear(gate) ? gate : Gate::with_grad;
}

// Up to 2.12 torch.clamp takes max and min on the GPU, which make +0 greater than -0; since then it
// compares, as on the CPU (pytorch/pytorch#185354).
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13
CLAMPGRAD_HOST_DEVICE float greater(float x, float lo) {
  return fmaxf(x, lo);
}
CLAMPGRAD_HOST_DEVICE double greater(double x, double lo) {
  return fmax(x, lo);
}
CLAMPGRAD_HOST_DEVICE float lesser(float x, float hi) {
  return fminf(x, hi);
}
CLAMPGRAD_HOST_DEVICE double lesser(double x, double hi) {
  return fmin(x, hi);
}
template <bool has_lo, bool has_hi, typename E, typename V, typename K>
CLAMPGRAD_HOST_DEVICE V
clamped(V value, K key, bool comparable, const Bounds<V>& values, const Bounds<K>& keys) {
  if constexpr (std::is_integral_v<V>) { // of two zeros, the signs decide
    V y = value;
    if constexpr (has_lo) {
      y = key < keys.lo ? values.lo : key == keys.lo ? V(y & values.lo) : y;
    }
    const K raised = E::key(y);
    if constexpr (has_hi) {
      y = raised > keys.hi ? values.hi : raised == keys.hi ? V(y | values.hi) : y;
    }
    return comparable ? y : value;
  } else {
    const V over = has_lo ? greater(value, values.lo) : value;
    return value == value ? (has_hi ? lesser(over, values.hi) : over) : value;
  }
}
#else
template <bool has_lo, bool has_hi, typename E, typename V, typename K>
CLAMPGRAD_HOST_DEVICE V
clamped(V value, K key, bool comparable, const Bounds<V>& values, const Bounds<K>& keys) {
  const auto beyond = results<has_lo, has_hi>(values, keys);
  return clamp_value<has_lo, has_hi>(value, key, comparable, beyond, keys);
}
#endif

template <typename Element>
struct Numbers {
  using V = typename Element::Lane;
  Bounds<V> values;
  Bounds<KeyOf<Element>> keys;
};

template <Gate gate, bool has_lo, bool has_hi, typename Element>
struct EncodeGateOp {
  using E = Element;
  using V = typename E::Lane;
  static constexpr int kIn = 1, kPlanes = planes(gate);
  Numbers<E> bounds;

  CLAMPGRAD_HOST_DEVICE int operator()(const V (&in)[1], V& y) const {
    const auto key = E::key(in[0]);
    const bool comparable = E::comparable(in[0]);
    y = clamped<has_lo, has_hi, E>(in[0], key, comparable, bounds.values, bounds.keys);
    const auto code = encode<gate, has_lo, has_hi>(key, comparable, bounds.keys);
    return code.first | code.second << 1;
  }
};

template <Gate gate, typename Element>
struct DecodeGateOp {
  using E = Element;
  using V = typename E::Lane;
  static constexpr int kOut = 1, kPlanes = planes(gate);

  CLAMPGRAD_HOST_DEVICE void operator()(V g, int code, V (&out)[1]) const {
    out[0] = decode<gate, E>(g, Code<bool>{(code & 1) != 0, (code & 2) != 0});
  }
};

__global__ void __launch_bounds__(kThreads)
    unpack_kernel(const uint64_t* bits, int planes, int64_t codes, bool* mask, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) {
    mask[i] = (codes >> code_of(bits, planes, n, i) & 1) != 0;
  }
}

// A bound as torch.clamp converts it on the GPU: rounded to the dtype, but out of the range of the
// type that is computed in. Beyond that it raises.
template <typename T>
typename ElementOf<T>::Lane lane_of(const Number& bound) {
  using Computed = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const T value = bound ? static_cast<T>(bound->to<Computed>()) : T(0);
  typename ElementOf<T>::Lane lane;
  std::memcpy(&lane, &value, sizeof(lane));
  return lane;
}

// f(bounds, has_lo, has_hi)
template <typename T, typename F>
void with_bounds(const Number& min, const Number& max, F f) {
  using E = ElementOf<T>;
  const auto lo = lane_of<T>(min), hi = lane_of<T>(max);
  const Numbers<E> bounds = {{lo, hi}, {E::key(lo), E::key(hi)}};
  if (min && max) {
    f(bounds, std::true_type(), std::true_type());
  } else if (min) {
    f(bounds, std::true_type(), std::false_type());
  } else {
    f(bounds, std::false_type(), std::true_type());
  }
}

} // namespace

void gate_encode(const Forward<1>& m, const Number& min, const Number& max, Gate gate) {
  dispatch(m.dtype, "clamp", [&](auto element) {
    using T = decltype(element);
    with_bounds<T>(min, max, [&](const auto& bounds, auto has_lo, auto has_hi) {
      with_constant<kGates>(encoded_as(gate), [&](auto constant) {
        // Of the pseudo-gradients only one is asked for here.
        constexpr Gate g = encoded_as(decltype(constant)::value);
        using Op = EncodeGateOp<g, decltype(has_lo)::value, decltype(has_hi)::value, ElementOf<T>>;
        launch_encode(m, Op{bounds});
      });
    });
  });
}

void gate_decode(const Backward<1>& m, Gate gate) {
  dispatch(m.dtype, "clamp_backward", [&](auto element) {
    using T = decltype(element);
    with_constant<kGates>(gate, [&](auto constant) {
      launch_decode(m, DecodeGateOp<decltype(constant)::value, ElementOf<T>>());
    });
  });
}

void unpack(
    c10::Device device, int64_t n, const uint64_t* bits, int planes, int64_t codes, bool* mask) {
  launch(device, n, kThreads, unpack_kernel, bits, planes, codes, mask, n);
}

} // namespace clampgrad::cuda
