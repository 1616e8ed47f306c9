// Gates on the GPU: one pass forward, one pass backward.

#include "kernels/cuda/dispatch.cuh"

#include <torch/headeronly/version.h>

#include <cstring>

namespace clampgrad::cuda {
namespace {

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
struct Clamp {
  template <bool has_lo, bool has_hi, typename E, typename V, typename K>
  static CLAMPGRAD_HOST_DEVICE V
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
};
#else
using Clamp = ClampByComparison;
#endif

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

} // namespace

void gate_encode(const Forward<1>& m, const Number& min, const Number& max, Gate gate) {
  dispatch(m.dtype, "clamp", [&](auto scalar) {
    using T = decltype(scalar);
    using E = ElementOf<T>;
    const Bounds<typename E::Lane> bounds = {lane_of<T>(min), lane_of<T>(max)};
    with_gate_encode<E, Clamp>(
        bounds, min.has_value(), max.has_value(), gate, [&](auto op) { launch_encode(m, op); });
  });
}

void gate_decode(const Backward<1>& m, Gate gate) {
  dispatch(m.dtype, "clamp_backward", [&](auto scalar) {
    using E = ElementOf<decltype(scalar)>;
    with_gate_decode<E>(gate, [&](auto op) { launch_decode(m, op); });
  });
}

void unpack(
    c10::Device device, int64_t n, const uint64_t* bits, int planes, int64_t codes, bool* mask) {
  launch(device, n, kThreads, unpack_kernel, bits, planes, codes, mask, n);
}

} // namespace clampgrad::cuda
