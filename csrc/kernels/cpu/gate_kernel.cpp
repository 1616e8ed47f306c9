// Gates on the CPU: one pass forward, one pass backward.

#include "kernels/backend.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/dispatch.h"

#include <cstring>

namespace clampgrad::cpu {

namespace {

template <typename T>
const GateLoops<T>& best_gate_loops() {
  static const auto best = CLAMPGRAD_BEST(gate_loops<T>());
  return best;
}

template <typename T>
Numbers<Lane<T>> numbers(const Number& min, const Number& max) {
  const auto lane = [](const Number& bound) {
    const T value = bound ? bound->to<T>() : T(0); // raises on overflow, as torch.clamp does
    Lane<T> bits;
    std::memcpy(&bits, &value, sizeof(bits));
    return bits;
  };
  return {lane(min), lane(max)};
}

// Which of the loops for two bounds, a lower or an upper one.
int which(const Number& min, const Number& max) {
  return min ? (max ? 0 : 1) : 2;
}

} // namespace

void gate_encode(
    const Flat& flat,
    const void* x,
    void* y,
    uint64_t* bits,
    const Number& min,
    const Number& max,
    Gate gate) {
  dispatch(flat.dtype, "clamp", [&](auto scalar) {
    using T = decltype(scalar);
    const auto bounds = numbers<T>(min, max);
    const auto loop = best_gate_loops<T>().encode[int64_t(gate)][which(min, max)];
    const Encoded<1, Lane<T>> s = {{in<T>(x)}, {out<T>(y)}, bits, flat.n};
    foreach_words(flat.n, [&](int64_t begin, int64_t end) { loop(s, begin, end, bounds); });
  });
}

void gate_decode(const Flat& flat, const void* g, const uint64_t* bits, void* dx, Gate gate) {
  dispatch(flat.dtype, "clamp_backward", [&](auto scalar) {
    using T = decltype(scalar);
    const auto loop = best_gate_loops<T>().decode[int64_t(gate)];
    const Decoded<1, Lane<T>> s = {{in<T>(g)}, {out<T>(dx)}, bits, flat.n};
    foreach_words(flat.n, [&](int64_t begin, int64_t end) { loop(s, begin, end); });
  });
}

void gate_select(
    const Flat& flat,
    const void* g,
    const void* x,
    void* dx,
    const Number& min,
    const Number& max) {
  dispatch(flat.dtype, "clamp_mingrad_backward", [&](auto scalar) {
    using T = decltype(scalar);
    const auto bounds = numbers<T>(min, max);
    const auto loop = best_gate_loops<T>().select[which(min, max)];
    at::parallel_for(0, flat.n, at::internal::GRAIN_SIZE, [&](int64_t begin, int64_t end) {
      loop(in<T>(g) + begin, in<T>(x) + begin, out<T>(dx) + begin, end - begin, bounds);
    });
  });
}

void unpack(const Flat& flat, const uint64_t* bits, int planes, int64_t codes, bool* mask) {
  for (int64_t i = 0; i < flat.n; ++i) {
    mask[i] = (codes >> code_of(bits, planes, flat.n, i) & 1) != 0;
  }
}

} // namespace clampgrad::cpu
