// The kernels of the CPU: the best loop for this machine and dtype, over words that ATen's threads
// share.

#include "kernels/backend.h"
#include "kernels/cpu/loops.h"
#include "kernels/dispatch.h"

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h> // the grain

#include <cstring>

namespace clampgrad::cpu {

namespace {

template <typename T>
const Loops<T>& best_loops() {
  static const auto best = CLAMPGRAD_BEST(all_loops<T>());
  return best;
}

template <typename T, int ins, int outs, typename Word>
Streams<ins, outs, Lane<T>, Word> streams(const Memory<ins, outs, Word>& m) {
  Streams<ins, outs, Lane<T>, Word> s;
  for (int k = 0; k < ins; ++k) {
    s.in[k] = static_cast<const Lane<T>*>(m.in[k]);
    s.period[k] = words(m.period[k]);
  }
  for (int k = 0; k < outs; ++k) {
    s.out[k] = static_cast<Lane<T>*>(m.out[k]);
  }
  s.bits = m.bits;
  s.n = m.n;
  return s;
}

// loop(streams, begin, end, args...) over the words of a call.
template <typename T, typename Memory, typename Loop, typename... Args>
void run(const Memory& m, Loop loop, const Args&... args) {
  const auto s = streams<T>(m);
  constexpr auto grain = at::internal::GRAIN_SIZE / kWord;
  at::parallel_for(
      0, words(m.n), grain, [&](int64_t begin, int64_t end) { loop(s, begin, end, args...); });
}

template <typename T>
Numbers<Lane<T>> numbers(const Number& min, const Number& max) {
  const auto lane = [](const Number& bound) {
    const T value = bound ? bound->to<T>() : T(0); // raises on overflow, as torch.clamp does
    Lane<T> bits;
    std::memcpy(&bits, &value, sizeof(bits));
    return bits;
  };
  return {lane(min), lane(max), min.has_value(), max.has_value()};
}

} // namespace

void gate_encode(const Forward<1>& m, const Number& min, const Number& max, Gate gate) {
  dispatch(m.dtype, "clamp", [&](auto scalar) {
    using T = decltype(scalar);
    run<T>(m, best_loops<T>().gate_encode, numbers<T>(min, max), gate);
  });
}

#define CLAMPGRAD_RUN(kernel, name, ...)            \
  dispatch(m.dtype, name, [&](auto scalar) {        \
    using T = decltype(scalar);                     \
    run<T>(m, best_loops<T>().kernel, __VA_ARGS__); \
  })

void gate_decode(const Backward<1>& m, Gate gate) {
  CLAMPGRAD_RUN(gate_decode, "clamp_backward", gate);
}

void pair_encode(const Forward<2>& m, bool greater_wins, bool nan_loses, PairCodes codes) {
  CLAMPGRAD_RUN(pair_encode, "maximum", greater_wins, nan_loses, codes);
}

void pair_decode(const Backward<2>& m, Sharing sharing, bool clamps_from_below) {
  CLAMPGRAD_RUN(pair_decode, "maximum_backward", sharing, clamps_from_below);
}

void triple_encode(const Forward<3>& m, TripleRule rule, int differentiated) {
  CLAMPGRAD_RUN(triple_encode, "clamp", rule, differentiated);
}

void triple_decode(const Backward<3>& m, Sharing sharing) {
  CLAMPGRAD_RUN(triple_decode, "clamp_backward", sharing);
}

#undef CLAMPGRAD_RUN

void unpack(c10::Device, int64_t n, const uint64_t* bits, int planes, int64_t codes, bool* mask) {
  for (int64_t i = 0; i < n; ++i) {
    mask[i] = (codes >> code_of(bits, planes, n, i) & 1) != 0;
  }
}

} // namespace clampgrad::cpu
