// Shares on the CPU: one pass forward for the result and the bits, one backward for all gradients.

#include "Kernels.h"
#include "autograd/kernels.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/streams.h"
#include "kernels/memory_order.h"
#include "kernels/saved_bits.h"
#include "kernels/shares.h"

#include <ATen/ATen.h>

#if defined(CLAMPGRAD_X86_ISAS)
#include <immintrin.h>
#endif

namespace clampgrad {
namespace {

// The loops of one dtype.
template <typename T>
struct ShareLoops {
  using L = Lane<T>;

  void (*encode_pair[2][2])(const Encoded<2, L>&, int64_t, int64_t, PairCodes);
  void (*encode_triple[kRules])(const Encoded<3, L>&, int64_t, int64_t, int);
  void (*decode_pair[kSharings])(const Decoded<2, L>&, int64_t, int64_t, bool);
  void (*decode_triple[kSharings])(const Decoded<3, L>&, int64_t, int64_t);
};

} // namespace
} // namespace clampgrad

#define CLAMPGRAD_LOOPS "kernels/cpu/share_loops.h"
#include "kernels/cpu/foreach_isa.h"

namespace clampgrad {

using namespace clampgrad::cpu;

namespace {

template <typename T>
const ShareLoops<T>& best_loops() {
  static const auto best = CLAMPGRAD_BEST(share_loops<T>());
  return best;
}

uint64_t* words_of(const at::Tensor& bits) {
  return static_cast<uint64_t*>(bits.mutable_data_ptr());
}

} // namespace

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
  dispatch(self.scalar_type(), "maximum", [&](auto scalar) {
    using T = decltype(scalar);
    const auto loop = best_loops<T>().encode_pair[greater_wins][nan_loses];
    const PairCodes codes = {static_cast<int>(tie), static_cast<int>(nan)};
    const Encoded<2, Lane<T>> s = {{in<T>(a), in<T>(b)}, {out<T>(y)}, words_of(bits), n};
    foreach_words(n, [&](int64_t begin, int64_t end) { loop(s, begin, end, codes); });
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
  dispatch(self.scalar_type(), "clamp", [&](auto scalar) {
    using T = decltype(scalar);
    const auto loop = best_loops<T>().encode_triple[rule];
    const auto differentiated = static_cast<int>(among);
    const Encoded<3, Lane<T>> s = {
        {in<T>(x), in<T>(lo), in<T>(hi)}, {out<T>(y)}, words_of(bits), n};
    foreach_words(n, [&](int64_t begin, int64_t end) { loop(s, begin, end, differentiated); });
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
  auto* word = checked_bits(bits, n, 2);
  std::array<at::Tensor, 2> to;
  for (int i = 0; i < 2; ++i) {
    to[i] = wanted[i] ? empty_in_order(grad.sizes(), order, grad.options()) : at::Tensor();
  }
  dispatch(g.scalar_type(), "maximum_backward", [&](auto scalar) {
    using T = decltype(scalar);
    const auto loop = best_loops<T>().decode_pair[int64_t(sharing)];
    const Decoded<2, Lane<T>> s = {{in<T>(g)}, {out<T>(to[0]), out<T>(to[1])}, word, n};
    foreach_words(n, [&](int64_t begin, int64_t end) { loop(s, begin, end, clamps_from_below); });
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
  auto* word = checked_bits(bits, n, 3);
  std::array<at::Tensor, 3> to;
  for (int i = 0; i < 3; ++i) {
    to[i] = wanted[i] ? empty_in_order(grad.sizes(), order, grad.options()) : at::Tensor();
  }
  dispatch(g.scalar_type(), "clamp_backward", [&](auto scalar) {
    using T = decltype(scalar);
    const auto loop = best_loops<T>().decode_triple[int64_t(sharing)];
    const Decoded<3, Lane<T>> s = {
        {in<T>(g)}, {out<T>(to[0]), out<T>(to[1]), out<T>(to[2])}, word, n};
    foreach_words(n, [&](int64_t begin, int64_t end) { loop(s, begin, end); });
  });
  return to;
}

} // namespace clampgrad
