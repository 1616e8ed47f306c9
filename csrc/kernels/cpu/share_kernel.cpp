// Shares on the CPU: one pass forward for the result and the bits, one backward for all gradients.

#include "Kernels.h"
#include "autograd/kernels.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/memory_order.h"
#include "kernels/saved_bits.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace clampgrad::cpu {
namespace {

template <typename T>
struct PairIn {
  const T *self, *other;
  T* y;
  PairCodes codes;
};
template <typename T>
struct TripleIn {
  const T *x, *lo, *hi;
  T* y;
  int differentiated;
};
// A gradient that nobody wants is null.
template <typename T>
struct PairOut {
  const T* g;
  T *self, *other;
  bool clamps_from_below;
};
template <typename T>
struct TripleOut {
  const T* g;
  T *x, *lo, *hi;
};

template <typename T>
struct ShareLoops {
  void (*encode_pair[2][2])(const PairIn<T>&, uint64_t*, int64_t, int64_t, int64_t);
  void (*encode_triple[5])(const TripleIn<T>&, uint64_t*, int64_t, int64_t, int64_t);
  void (*decode_pair[kSharings])(const PairOut<T>&, const uint64_t*, int64_t, int64_t, int64_t);
  void (*decode_triple[kSharings])(const TripleOut<T>&, const uint64_t*, int64_t, int64_t, int64_t);
};

} // namespace
} // namespace clampgrad::cpu

#define CLAMPGRAD_LOOPS "kernels/cpu/share_loops.h"
#include "kernels/cpu/foreach_isa.h"

namespace clampgrad::cpu {
namespace {

template <typename T>
const ShareLoops<T>& best_loops() {
  static const ShareLoops<T> chosen = [] {
#if defined(CLAMPGRAD_X86_ISAS)
    if (isas().avx512) {
      return avx512::share_loops<T>();
    }
    if (isas().avx2) {
      return avx2::share_loops<T>();
    }
#endif
    return baseline::share_loops<T>();
  }();
  return chosen;
}

constexpr int64_t kGrain = at::internal::GRAIN_SIZE / kWord;

template <typename T>
const T* in(const at::Tensor& t) {
  return static_cast<const T*>(t.const_data_ptr());
}
template <typename T>
T* out(const at::Tensor& t) {
  return t.defined() ? static_cast<T*>(t.mutable_data_ptr()) : nullptr;
}

template <typename F>
void foreach_words(int64_t n, F f) {
  at::parallel_for(0, words(n), kGrain, f);
}

} // namespace
} // namespace clampgrad::cpu

namespace clampgrad {

using namespace clampgrad::cpu;

namespace native {

std::tuple<at::Tensor, at::Tensor> extremum_shares_cpu(
    const at::Tensor& self,
    const at::Tensor& other,
    bool greater_wins,
    bool nan_loses,
    int64_t tie,
    int64_t nan,
    int64_t /*sharing*/,
    int64_t order) {
  const auto a = in_memory_order(self, order), b = in_memory_order(other, order);
  const auto n = self.numel();
  const auto y = empty_in_order(self.sizes(), order, self.options());
  const auto bits = empty_bits(self, 2);
  dispatch(self.scalar_type(), "maximum", [&](auto element, auto) {
    using T = decltype(element);
    const PairIn<T> pair = {in<T>(a), in<T>(b), out<T>(y), {int(tie), int(nan)}};
    const auto loop = best_loops<T>().encode_pair[greater_wins][nan_loses];
    auto* word = out<uint64_t>(bits);
    foreach_words(n, [&](int64_t begin, int64_t end) { loop(pair, word, n, begin, end); });
  });
  return {y, bits};
}

std::tuple<at::Tensor, at::Tensor> clamp_shares_cpu(
    const at::Tensor& self,
    const at::Tensor& min,
    const at::Tensor& max,
    int64_t rule,
    int64_t among,
    int64_t /*sharing*/,
    int64_t order) {
  const auto x = in_memory_order(self, order), lo = in_memory_order(min, order),
             hi = in_memory_order(max, order);
  const auto n = self.numel();
  const auto y = empty_in_order(self.sizes(), order, self.options());
  const auto bits = empty_bits(self, 3);
  dispatch(self.scalar_type(), "clamp", [&](auto element, auto) {
    using T = decltype(element);
    const TripleIn<T> triple = {in<T>(x), in<T>(lo), in<T>(hi), out<T>(y), int(among)};
    const auto loop = best_loops<T>().encode_triple[rule];
    auto* word = out<uint64_t>(bits);
    foreach_words(n, [&](int64_t begin, int64_t end) { loop(triple, word, n, begin, end); });
  });
  return {y, bits};
}

} // namespace native

std::array<at::Tensor, 2> decode_pair_cpu(
    const at::Tensor& grad,
    const at::Tensor& bits,
    Sharing sharing,
    bool clamps_from_below,
    int64_t order,
    std::array<bool, 2> wanted) {
  const auto g = in_memory_order(grad, order);
  const auto n = g.numel();
  const auto* word = checked_bits(bits, n, 2);
  std::array<at::Tensor, 2> to;
  for (int i = 0; i < 2; ++i) {
    to[i] = wanted[i] ? empty_in_order(grad.sizes(), order, grad.options()) : at::Tensor();
  }
  dispatch(g.scalar_type(), "maximum_backward", [&](auto element, auto) {
    using T = decltype(element);
    const PairOut<T> pair = {in<T>(g), out<T>(to[0]), out<T>(to[1]), clamps_from_below};
    const auto loop = best_loops<T>().decode_pair[int64_t(sharing)];
    foreach_words(n, [&](int64_t begin, int64_t end) { loop(pair, word, n, begin, end); });
  });
  return to;
}

std::array<at::Tensor, 3> decode_triple_cpu(
    const at::Tensor& grad,
    const at::Tensor& bits,
    Sharing sharing,
    int64_t order,
    std::array<bool, 3> wanted) {
  const auto g = in_memory_order(grad, order);
  const auto n = g.numel();
  const auto* word = checked_bits(bits, n, 3);
  std::array<at::Tensor, 3> to;
  for (int i = 0; i < 3; ++i) {
    to[i] = wanted[i] ? empty_in_order(grad.sizes(), order, grad.options()) : at::Tensor();
  }
  dispatch(g.scalar_type(), "clamp_backward", [&](auto element, auto) {
    using T = decltype(element);
    const TripleOut<T> triple = {in<T>(g), out<T>(to[0]), out<T>(to[1]), out<T>(to[2])};
    const auto loop = best_loops<T>().decode_triple[int64_t(sharing)];
    foreach_words(n, [&](int64_t begin, int64_t end) { loop(triple, word, n, begin, end); });
  });
  return to;
}

} // namespace clampgrad
