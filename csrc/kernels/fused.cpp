#include "kernels/fused.h"

#include "Kernels.h"
#include "base/bounds.h"
#include "kernels/backend.h"
#include "kernels/check.h"
#include "kernels/memory_order.h"
#include "kernels/saved_bits.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty_like.h>

namespace clampgrad {

using at::Tensor;

namespace {

template <typename... In>
Forward<sizeof...(In)> forward(const Tensor& y, const Tensor& bits, const In&... in) {
  return {
      y.scalar_type(),
      y.device(),
      y.numel(),
      static_cast<uint64_t*>(bits.mutable_data_ptr()),
      {y.mutable_data_ptr()},
      {in.tensor.const_data_ptr()...},
      {in.period...}};
}

// y may be x.
void encode_gate(
    const Tensor& x,
    const Tensor& y,
    const Tensor& bits,
    const Number& min,
    const Number& max,
    Gate gate) {
  CLAMPGRAD_CALL_KERNEL(
      x.device(), gate_encode, forward(y, bits, Repeated{x, x.numel()}), min, max, gate);
}

// A gradient for each that is wanted, by kernel(memory).
template <size_t n, typename Kernel>
std::array<Tensor, n> decode(
    const Tensor& grad,
    const Tensor& bits,
    int planes,
    int64_t order,
    const std::array<bool, n>& wanted,
    const Kernel& kernel) {
  const auto [g, period] = repeated_in_memory_order(grad, order);
  const auto saved = checked_bits(bits, grad, planes);
  const auto* words = static_cast<const uint64_t*>(saved.const_data_ptr());
  Backward<n> memory = {
      grad.scalar_type(), grad.device(), grad.numel(), words, {}, {g.const_data_ptr()}, {period}};
  std::array<Tensor, n> to;
  for (size_t i = 0; i < n; ++i) {
    if (wanted[i]) {
      to[i] = empty_in_order(grad.sizes(), order, grad.options());
      memory.out[i] = to[i].mutable_data_ptr();
    }
  }
  kernel(memory);
  return to;
}

void check_alike(const Tensor& self, const Tensor& t) {
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

int checked_planes(int64_t planes) {
  TORCH_CHECK_VALUE(planes >= 1 && planes <= 3, "clampgrad: nothing has ", planes, " bit planes");
  return static_cast<int>(planes);
}

} // namespace

namespace native {

// ---- Forward: one pass for the result and the bits ----------------------------------------------

std::tuple<Tensor, Tensor> clamp_gate(
    const Tensor& self, const Number& min, const Number& max, int64_t gate_, int64_t order) {
  const auto gate = checked_enum<Gate>(gate_, kGates);
  check_has_bound(min, max);
  TORCH_CHECK_VALUE(!is_nan(min) && !is_nan(max), "clampgrad: a bound of NaN has no gate");
  const auto x = in_memory_order(self, order);
  const auto bits = empty_bits(self, planes(gate));
  if (!x.is_alias_of(self)) { // not dense: x is a copy of our own
    encode_gate(x, x, bits, min, max, gate);
    return {at::empty_like(self).copy_(x), bits};
  }
  const auto y = empty_result(order, self);
  encode_gate(x, y, bits, min, max, gate);
  return {y, bits};
}

std::tuple<Tensor, Tensor> extremum_shares(
    const Tensor& self,
    const Tensor& other,
    bool greater_wins,
    bool nan_loses,
    int64_t tie,
    int64_t nan,
    int64_t sharing,
    int64_t order) {
  check_alike(self, other);
  PairCodes codes = {checked_enum<int>(tie, kBoth + 1), checked_enum<int>(nan, kBoth + 1)};
  if (checked_enum<Sharing>(sharing, kSharings) == Sharing::nan_to_both) {
    codes.nan = 0; // the bits of a tie are taken
  }
  const auto a = repeated_in_memory_order(self, order), b = repeated_in_memory_order(other, order);
  const auto y = empty_result(order, self, other);
  const auto bits = empty_bits(self, 2);
  CLAMPGRAD_CALL_KERNEL(
      y.device(), pair_encode, forward(y, bits, a, b), greater_wins, nan_loses, codes);
  return {y, bits};
}

std::tuple<Tensor, Tensor> clamp_shares(
    const Tensor& self,
    const Tensor& min,
    const Tensor& max,
    int64_t rule_,
    int64_t among_,
    int64_t sharing,
    int64_t order) {
  check_alike(self, min);
  check_alike(self, max);
  checked_enum<Sharing>(sharing, kSharings);
  const auto rule = checked_enum<TripleRule>(rule_, kTripleRules);
  const auto among = checked_enum<int>(among_, kAll + 1);
  const auto x = repeated_in_memory_order(self, order), lo = repeated_in_memory_order(min, order),
             hi = repeated_in_memory_order(max, order);
  const auto y = empty_result(order, self, min, max);
  const auto bits = empty_bits(self, 3);
  CLAMPGRAD_CALL_KERNEL(y.device(), triple_encode, forward(y, bits, x, lo, hi), rule, among);
  return {y, bits};
}

Tensor mask(
    const Tensor& bits, c10::SymIntArrayRef size, int64_t codes, int64_t planes_, int64_t order) {
  const auto planes = checked_planes(planes_);
  const auto mask =
      empty_in_order(C10_AS_INTARRAYREF_SLOW(size), order, bits.options().dtype(at::kBool));
  const auto saved = checked_bits(bits, mask, planes);
  const auto* words = static_cast<const uint64_t*>(saved.const_data_ptr());
  const auto device = mask.device();
  auto* to = mask.mutable_data_ptr<bool>();
  CLAMPGRAD_CALL_KERNEL(device, unpack, device, mask.numel(), words, planes, codes, to);
  return mask;
}

Tensor mask_meta(
    const Tensor& bits, c10::SymIntArrayRef size, int64_t codes, int64_t planes, int64_t order) {
  checked_planes(planes);
  return empty_in_order_symint(size, order, bits.options().dtype(at::kBool));
}

} // namespace native

Tensor clamp_gate_(
    const Tensor& self, const Number& min, const Number& max, Gate gate, int64_t order) {
  at::assert_no_internal_overlap(self);
  const auto x = in_memory_order(self, order);
  const auto bits = empty_bits(x, planes(gate));
  encode_gate(x, x, bits, min, max, gate);
  if (!x.is_alias_of(self)) {
    self.copy_(x);
  }
  return bits;
}

// ---- Backward: one pass for all gradients -------------------------------------------------------

Tensor decode_gate(const Tensor& grad, const Tensor& bits, Gate gate, int64_t order) {
  const auto kernel = [&](const Backward<1>& memory) {
    CLAMPGRAD_CALL_KERNEL(memory.device, gate_decode, memory, gate);
  };
  return decode<1>(grad, bits, planes(gate), order, {true}, kernel)[0];
}

std::array<Tensor, 2> decode(
    const RecordedPair& of, const Tensor& grad, const std::array<bool, 2>& wanted) {
  return decode<2>(grad, of.bits, 2, of.order, wanted, [&](const Backward<2>& memory) {
    CLAMPGRAD_CALL_KERNEL(memory.device, pair_decode, memory, of.sharing, of.clamps_from_below);
  });
}

std::array<Tensor, 3> decode(
    const RecordedTriple& of, const Tensor& grad, const std::array<bool, 3>& wanted) {
  return decode<3>(grad, of.bits, 3, of.order, wanted, [&](const Backward<3>& memory) {
    CLAMPGRAD_CALL_KERNEL(memory.device, triple_decode, memory, of.sharing);
  });
}

} // namespace clampgrad
