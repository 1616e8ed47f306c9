// Tensors for bounds, maximum and its kind: one pass forward for the result and the bits, one
// backward for all gradients.

#include "Kernels.h"
#include "kernels/backend.h"
#include "kernels/check.h"
#include "kernels/fused.h"
#include "kernels/memory_order.h"
#include "kernels/saved_bits.h"

#include <ATen/core/Tensor.h>

#include <functional>
#include <initializer_list>

namespace clampgrad {

namespace {

// A gradient for each that is wanted.
template <size_t n>
std::array<at::Tensor, n> empty_gradients(
    const at::Tensor& grad, int64_t order, const std::array<bool, n>& wanted) {
  std::array<at::Tensor, n> to;
  for (size_t i = 0; i < n; ++i) {
    to[i] = wanted[i] ? empty_in_order(grad.sizes(), order, grad.options()) : at::Tensor();
  }
  return to;
}

void check_alike(std::initializer_list<std::reference_wrapper<const at::Tensor>> args) {
  const at::Tensor& self = *args.begin();
  for (const at::Tensor& t : args) {
    TORCH_CHECK(
        t.sizes() == self.sizes() && t.scalar_type() == self.scalar_type() &&
            t.device() == self.device(),
        "clampgrad: expected Tensors of one shape, dtype and device, got ",
        self.toString(),
        self.sizes(),
        " and ",
        t.toString(),
        t.sizes());
  }
}

void* pointer(const at::Tensor& t) {
  return t.defined() ? t.mutable_data_ptr() : nullptr;
}

} // namespace

namespace native {

std::tuple<at::Tensor, at::Tensor> extremum_shares(
    const at::Tensor& self,
    const at::Tensor& other,
    bool greater_wins,
    bool nan_loses,
    int64_t tie,
    int64_t nan,
    int64_t sharing,
    int64_t order) {
  check_alike({self, other});
  PairCodes codes = {checked_enum<int>(tie, kBoth + 1), checked_enum<int>(nan, kBoth + 1)};
  if (checked_enum<Sharing>(sharing, kSharings) == Sharing::nan_to_both) {
    codes.nan = 0; // the bits of a tie are taken
  }
  const auto a = in_memory_order(self, order), b = in_memory_order(other, order);
  const auto y = empty_result(order, self, other);
  const auto bits = empty_bits(self, 2);
  backend(a.device())
      .pair_encode(
          flat(a),
          a.const_data_ptr(),
          b.const_data_ptr(),
          y.mutable_data_ptr(),
          mutable_words(bits),
          greater_wins,
          nan_loses,
          codes);
  return {y, bits};
}

std::tuple<at::Tensor, at::Tensor> clamp_shares(
    const at::Tensor& self,
    const at::Tensor& min,
    const at::Tensor& max,
    int64_t rule,
    int64_t among,
    int64_t sharing,
    int64_t order) {
  check_alike({self, min, max});
  checked_enum<Sharing>(sharing, kSharings);
  const auto x = in_memory_order(self, order), lo = in_memory_order(min, order),
             hi = in_memory_order(max, order);
  const auto y = empty_result(order, self, min, max);
  const auto bits = empty_bits(self, 3);
  backend(x.device())
      .triple_encode(
          flat(x),
          x.const_data_ptr(),
          lo.const_data_ptr(),
          hi.const_data_ptr(),
          y.mutable_data_ptr(),
          mutable_words(bits),
          checked_enum<TripleRule>(rule, kTripleRules),
          checked_enum<int>(among, kAll + 1));
  return {y, bits};
}

} // namespace native

std::array<at::Tensor, 2> decode_pair(
    const at::Tensor& grad,
    const at::Tensor& bits,
    Sharing sharing,
    bool clamps_from_below,
    int64_t order,
    std::array<bool, 2> wanted) {
  const auto g = in_memory_order(grad, order);
  const auto saved = checked_bits(bits, g, 2);
  auto to = empty_gradients(grad, order, wanted);
  backend(g.device())
      .pair_decode(
          flat(g),
          g.const_data_ptr(),
          words_of(saved),
          pointer(to[0]),
          pointer(to[1]),
          sharing,
          clamps_from_below);
  return to;
}

std::array<at::Tensor, 3> decode_triple(
    const at::Tensor& grad,
    const at::Tensor& bits,
    Sharing sharing,
    int64_t order,
    std::array<bool, 3> wanted) {
  const auto g = in_memory_order(grad, order);
  const auto saved = checked_bits(bits, g, 3);
  auto to = empty_gradients(grad, order, wanted);
  backend(g.device())
      .triple_decode(
          flat(g),
          g.const_data_ptr(),
          words_of(saved),
          pointer(to[0]),
          pointer(to[1]),
          pointer(to[2]),
          sharing);
  return to;
}

} // namespace clampgrad
