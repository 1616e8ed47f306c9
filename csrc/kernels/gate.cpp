// Numbers for bounds: one pass forward, one pass backward.

#include "Kernels.h"
#include "base/bounds.h"
#include "kernels/backend.h"
#include "kernels/check.h"
#include "kernels/fused.h"
#include "kernels/memory_order.h"
#include "kernels/saved_bits.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

namespace clampgrad {

namespace {

// y may be x.
void encode_flat(
    const at::Tensor& x,
    const at::Tensor& y,
    const at::Tensor& bits,
    const Number& min,
    const Number& max,
    Gate gate) {
  backend(x.device())
      .gate_encode(
          flat(x), x.const_data_ptr(), y.mutable_data_ptr(), mutable_words(bits), min, max, gate);
}

int checked_planes(int64_t planes) {
  TORCH_CHECK_VALUE(planes >= 1 && planes <= 3, "clampgrad: nothing has ", planes, " bit planes");
  return static_cast<int>(planes);
}

} // namespace

namespace native {

std::tuple<at::Tensor, at::Tensor> clamp_gate(
    const at::Tensor& self,
    const std::optional<at::Scalar>& min,
    const std::optional<at::Scalar>& max,
    int64_t gate_,
    int64_t order) {
  const auto gate = checked_enum<Gate>(gate_, kGates);
  check_has_bound(min, max);
  TORCH_CHECK_VALUE(!is_nan(min) && !is_nan(max), "clampgrad: a bound of NaN has no gate");
  const auto x = in_memory_order(self, order);
  const auto bits = empty_bits(self, planes(gate));
  if (!x.is_alias_of(self)) { // not dense: x is a copy of our own
    encode_flat(x, x, bits, min, max, gate);
    return {at::empty_like(self).copy_(x), bits};
  }
  const auto y = empty_result(order, self);
  encode_flat(x, y, bits, min, max, gate);
  return {y, bits};
}

at::Tensor mask(
    const at::Tensor& bits,
    c10::SymIntArrayRef size,
    int64_t codes,
    int64_t planes,
    int64_t order) {
  const auto p = checked_planes(planes);
  const auto mask =
      empty_in_order(C10_AS_INTARRAYREF_SLOW(size), order, bits.options().dtype(at::kBool));
  const auto saved = checked_bits(bits, mask, p);
  backend(mask.device())
      .unpack(flat(mask), words_of(saved), p, codes, mask.mutable_data_ptr<bool>());
  return mask;
}

at::Tensor mask_meta(
    const at::Tensor& bits,
    c10::SymIntArrayRef size,
    int64_t codes,
    int64_t planes,
    int64_t order) {
  checked_planes(planes);
  return empty_in_order_symint(size, order, bits.options().dtype(at::kBool));
}

at::Tensor clamp_mingrad_backward(
    const at::Tensor& grad_output,
    const at::Tensor& self,
    const std::optional<at::Scalar>& min,
    const std::optional<at::Scalar>& max) {
  check_has_bound(min, max);
  // Checks devices, dtypes and shapes, and decides the layout.
  at::Tensor dx;
  auto iter = at::TensorIteratorConfig()
                  .add_output(dx)
                  .add_const_input(grad_output)
                  .add_const_input(self)
                  .build();
  dx = iter.output();
  if (is_nan(min) || is_nan(max)) { // the result is NaN everywhere
    return dx.zero_();
  }
  const auto order = memory_order(dx).value_or(kContiguousOrder);
  const auto g = in_memory_order(grad_output.expand(dx.sizes()), order);
  const auto x = in_memory_order(self.expand(dx.sizes()), order);
  const auto to = in_memory_order(dx, order);
  backend(dx.device())
      .gate_select(
          flat(to), g.const_data_ptr(), x.const_data_ptr(), to.mutable_data_ptr(), min, max);
  return to.is_alias_of(dx) ? dx : dx.copy_(to); // no order where dimensions are too many
}

at::Tensor clamp_mingrad_backward_meta(
    const at::Tensor& grad_output,
    const at::Tensor& self,
    const std::optional<at::Scalar>& min,
    const std::optional<at::Scalar>& max) {
  check_has_bound(min, max);
  return at::empty_like(
      at::add(grad_output, self)); // the type promotion and broadcast of an elementwise operator
}

} // namespace native

at::Tensor clamp_gate_(
    const at::Tensor& self, const Number& min, const Number& max, Gate gate, int64_t order) {
  at::assert_no_internal_overlap(self);
  const auto x = in_memory_order(self, order);
  const auto bits = empty_bits(x, planes(gate));
  encode_flat(x, x, bits, min, max, gate);
  if (!x.is_alias_of(self)) {
    self.copy_(x);
  }
  return bits;
}

at::Tensor decode_gate(const at::Tensor& grad, const at::Tensor& bits, Gate gate, int64_t order) {
  const auto g = in_memory_order(grad, order);
  const auto saved = checked_bits(bits, g, planes(gate));
  const auto dx = empty_in_order(grad.sizes(), order, grad.options());
  backend(g.device())
      .gate_decode(flat(g), g.const_data_ptr(), words_of(saved), dx.mutable_data_ptr(), gate);
  return dx;
}

} // namespace clampgrad
