#pragma once
// What a convention does to a gradient, element by element. Free of ATen: CPU and CUDA share it.
//
// A gate is the part of the input that the backward needs: one or two bits an element, recorded in
// the forward. Two functions say all there is to say about it:
//   encode   (x, lo, hi) -> code     in the forward
//   decode   (g, code)   -> gradient in the backward
// Codes are stored as bit planes (csrc/kernels/memory_order.h says in which order): bit p of the
// code of element i is bit i of plane p. The rules are those of docs/conventions.md.

#include <cstdint>

#if defined(__CUDACC__)
#define CLAMPGRAD_HOST_DEVICE __host__ __device__ __forceinline__
#elif defined(_MSC_VER)
#define CLAMPGRAD_HOST_DEVICE __forceinline
#else
#define CLAMPGRAD_HOST_DEVICE inline __attribute__((always_inline))
#endif

namespace clampgrad {

// The values are part of saved graphs: append, do not reorder.
enum class Gate : int64_t {
  strict = 0, // open strictly between the bounds: min_norm and joint, whose numbers are constants
  inclusive = 1, // open at the bounds too
  half = 2, // minimum(maximum(x, lo), hi) with every tie shared equally
  with_grad = 3, // outside, open where a descent step moves x back
  with_grad_maximize = 4, // ... where an ascent step does
  restoring = 5, // outside, the descent direction back, of length 1
  restoring_maximize = 6, // ... the ascent direction
};
constexpr int64_t kGates = 7;
// Gates whose gradient is a linear function of g: only those have a tangent.
constexpr bool is_linear(Gate gate) {
  return gate == Gate::strict || gate == Gate::inclusive || gate == Gate::half;
}

constexpr int planes(Gate gate) {
  return gate == Gate::strict || gate == Gate::inclusive ? 1 : 2;
}

// Planes are made of words of 64 elements, each plane of whole words.
constexpr int64_t kWord = 64;

constexpr int64_t words(int64_t n) {
  return (n + kWord - 1) / kWord;
}
constexpr int64_t planes_bytes(int planes, int64_t n) {
  return planes * words(n) * 8;
}

// Codes of one plane: 0 shut, 1 open. Of two planes:
namespace weight { // Gate::half
constexpr int none = 0, one = 1, half = 2, quarter = 3;
}
namespace position { // the pseudo-gradients: where x lies, seen from the result
constexpr int nan = 0, inside = 1, below = 2, above = 3;
}

// The bounds of one call. T is any type that orders like the dtype of the result (the CPU kernels
// compare 16-bit floats as integers). An absent bound blocks nothing, and nothing ties with it.
template <typename T>
struct Bounds {
  T lo, hi;
};

// torch.clamp: NaN passes through, and hi wins where lo > hi. `key` and `keys` decide, `value` and
// `values` are returned.
template <bool has_lo, bool has_hi, typename V, typename T>
CLAMPGRAD_HOST_DEVICE V
clamp_value(V value, T key, bool number, const Bounds<V>& values, const Bounds<T>& keys) {
  const bool below = has_lo & number & (key < keys.lo);
  V y = below ? values.lo : value;
  const T y_key = below ? keys.lo : key;
  return has_hi & number & (keys.hi < y_key) ? values.hi : y;
}

// `number` is false for NaN, which must not depend on how T compares it.
template <Gate gate, bool has_lo, bool has_hi, typename T>
CLAMPGRAD_HOST_DEVICE int encode(T x, bool number, const Bounds<T>& b) {
  if constexpr (gate == Gate::strict) {
    return number & (!has_lo | (x > b.lo)) & (!has_hi | (x < b.hi));
  } else if constexpr (gate == Gate::inclusive) {
    return number & (!has_lo | (x >= b.lo)) & (!has_hi | (x <= b.hi));
  } else if constexpr (gate == Gate::half) {
    const bool tie_lo = has_lo & (x == b.lo), tie_hi = has_hi & (x == b.hi);
    const bool over_lo = !has_lo | (x > b.lo), under_hi = !has_hi | (x < b.hi);
    const bool one = over_lo & under_hi, quarter = tie_lo & tie_hi;
    const bool half = (tie_lo & under_hi) | (over_lo & tie_hi);
    return (number & (one | quarter)) | (number & (half | quarter)) << 1;
  } else {
    const T y = clamp_value<has_lo, has_hi>(x, x, number, b, b);
    const bool below = x < y;
    const bool above = x > y;
    const bool inside = x == y;
    return (number & (inside | above)) | (number & (below | above)) << 1;
  }
}

// Selects, never multiplies by 0: a shut element gets an exact 0 even where g is inf or NaN.
template <Gate gate, typename T>
CLAMPGRAD_HOST_DEVICE T decode(T g, int code) {
  const T zero = T(0);
  if constexpr (planes(gate) == 1) {
    return code ? g : zero;
  } else if constexpr (gate == Gate::half) {
    const T scale = code == weight::one ? T(1) : code == weight::half ? T(0.5) : T(0.25);
    return code == weight::none ? zero : g * scale;
  } else if constexpr (gate == Gate::with_grad || gate == Gate::with_grad_maximize) {
    // Descent moves x by -g: up where g < 0. A step of length 0 leaves x where it is.
    const bool up = gate == Gate::with_grad ? g <= zero : g >= zero;
    const bool down = gate == Gate::with_grad ? g >= zero : g <= zero;
    const bool open = code == position::inside || (code == position::below && up) ||
        (code == position::above && down);
    return open ? g : zero;
  } else {
    const T push = gate == Gate::restoring ? T(1) : T(-1);
    return code == position::inside ? g
        : code == position::below   ? -push
        : code == position::above   ? push
                                    : zero;
  }
}

} // namespace clampgrad
