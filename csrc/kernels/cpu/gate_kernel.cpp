// Gates on the CPU: one pass forward, one pass backward.

#include "kernels/backend.h"
#include "kernels/cpu/dispatch.h"

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace clampgrad::cpu {
namespace {

// The loops of one element type, chosen by gate and by which bounds are there.
template <typename T>
struct Loops {
  using Encode = void (*)(
      const T*, T*, uint64_t*, int64_t, int64_t, int64_t, const Bounds<T>&, const Bounds<Key<T>>&);
  using Decode = void (*)(const T*, T*, const uint64_t*, int64_t, int64_t, int64_t);
  // dx = g where the gate is open at x, without a recorded gate.
  using Select = void (*)(const T*, const T*, T*, int64_t, const Bounds<Key<T>>&);

  Encode encode[kGates][3];
  Decode decode[kGates];
  Select select[3];
};

} // namespace
} // namespace clampgrad::cpu

#define CLAMPGRAD_LOOPS "kernels/cpu/gate_loops.h"
#include "kernels/cpu/foreach_isa.h"

namespace clampgrad::cpu {
namespace {

template <typename T>
const Loops<T>& best_loops() {
  static const Loops<T> chosen = [] {
#if defined(CLAMPGRAD_X86_ISAS)
    if (isas().avx512) {
      return avx512::loops<T>();
    }
    if (isas().avx2) {
      return avx2::loops<T>();
    }
#endif
    return baseline::loops<T>();
  }();
  return chosen;
}

template <typename T, typename scalar_t>
T convert(const Bound& bound) {
  return bound ? reinterpret<T>(bound->to<scalar_t>()) : T(0); // raises on overflow, as torch does
}

// Which of the loops for two bounds, a lower or an upper one.
int which(const Bound& min, const Bound& max) {
  return min ? (max ? 0 : 1) : 2;
}

// Words a thread should have: ATen's grain of elements.
constexpr int64_t kGrain = at::internal::GRAIN_SIZE / kWord;

} // namespace

void gate_encode(
    const Flat& flat,
    const void* x,
    void* y,
    uint64_t* bits,
    const Bound& min,
    const Bound& max,
    Gate gate) {
  dispatch(flat.dtype, "clamp", [&](auto element, auto scalar) {
    using T = decltype(element);
    using scalar_t = decltype(scalar);
    const Bounds<T> bounds = {convert<T, scalar_t>(min), convert<T, scalar_t>(max)};
    const Bounds<Key<T>> keys = {key_of(bounds.lo), key_of(bounds.hi)};
    const auto loop = best_loops<T>().encode[int64_t(gate)][which(min, max)];
    const auto* in = static_cast<const T*>(x);
    auto* out = static_cast<T*>(y);
    at::parallel_for(0, words(flat.n), kGrain, [&](int64_t begin, int64_t end) {
      loop(in, out, bits, flat.n, begin, end, bounds, keys);
    });
  });
}

void gate_decode(const Flat& flat, const void* g, const uint64_t* bits, void* dx, Gate gate) {
  dispatch(flat.dtype, "clamp_backward", [&](auto element, auto) {
    using T = decltype(element);
    const auto loop = best_loops<T>().decode[int64_t(gate)];
    const auto* in = static_cast<const T*>(g);
    auto* out = static_cast<T*>(dx);
    at::parallel_for(0, words(flat.n), kGrain, [&](int64_t begin, int64_t end) {
      loop(in, out, bits, flat.n, begin, end);
    });
  });
}

void gate_select(
    const Flat& flat, const void* g, const void* x, void* dx, const Bound& min, const Bound& max) {
  dispatch(flat.dtype, "clamp_mingrad_backward", [&](auto element, auto scalar) {
    using T = decltype(element);
    using scalar_t = decltype(scalar);
    const Bounds<Key<T>> keys = {
        key_of(convert<T, scalar_t>(min)), key_of(convert<T, scalar_t>(max))};
    const auto loop = best_loops<T>().select[which(min, max)];
    at::parallel_for(0, flat.n, at::internal::GRAIN_SIZE, [&](int64_t begin, int64_t end) {
      loop(
          static_cast<const T*>(g) + begin,
          static_cast<const T*>(x) + begin,
          static_cast<T*>(dx) + begin,
          end - begin,
          keys);
    });
  });
}

void unpack_codes(const Flat& flat, const uint64_t* bits, uint8_t* codes, int planes) {
  for (int64_t i = 0; i < flat.n; ++i) {
    int code = 0;
    for (int plane = 0; plane < planes; ++plane) {
      code |= static_cast<int>(bits[plane * words(flat.n) + i / kWord] >> (i % kWord) & 1) << plane;
    }
    codes[i] = static_cast<uint8_t>(code);
  }
}

} // namespace clampgrad::cpu
