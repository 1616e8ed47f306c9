// Numbers for bounds: one pass forward, one pass backward.

#include "Kernels.h"
#include "autograd/kernels.h"
#include "kernels/backend.h"
#include "kernels/memory_order.h"
#include "kernels/saved_bits.h"
#include "ops/bounds.h"

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

} // namespace

namespace native {

std::tuple<at::Tensor, at::Tensor> clamp_gate(
    const at::Tensor& self,
    const std::optional<at::Scalar>& min,
    const std::optional<at::Scalar>& max,
    int64_t gate_,
    int64_t order) {
  const auto gate = static_cast<Gate>(gate_);
  const auto x = in_memory_order(self, order);
  const auto bits = empty_bits(self, planes(gate));
  if (!x.is_alias_of(self)) { // not dense: x is a copy of our own
    encode_flat(x, x, bits, min, max, gate);
    return {at::empty_like(self).copy_(x), bits};
  }
  const auto y = empty_in_order(self.sizes(), order, self.options());
  encode_flat(x, y, bits, min, max, gate);
  return {y, bits};
}

at::Tensor& clamp_gate_(
    at::Tensor& self,
    at::Tensor& bits,
    const std::optional<at::Scalar>& min,
    const std::optional<at::Scalar>& max,
    int64_t gate_,
    int64_t order) {
  at::assert_no_internal_overlap(self);
  const auto gate = static_cast<Gate>(gate_);
  const auto x = in_memory_order(self, order);
  const auto words = checked_bits(bits, x, planes(gate));
  encode_flat(x, x, words, min, max, gate);
  if (!words.is_same(bits)) {
    bits.copy_(words);
  }
  if (!x.is_alias_of(self)) {
    self.copy_(x);
  }
  return self;
}

at::Tensor codes(const at::Tensor& bits, c10::SymIntArrayRef size, int64_t planes, int64_t order) {
  const auto codes = empty_in_order(C10_AS_INTARRAYREF_SLOW(size), order, bits.options());
  const auto p = static_cast<int>(planes);
  const auto saved = checked_bits(bits, codes, p);
  backend(codes.device())
      .unpack_codes(flat(codes), words_of(saved), codes.mutable_data_ptr<uint8_t>(), p);
  return codes;
}

at::Tensor codes_meta(const at::Tensor& bits, c10::SymIntArrayRef size, int64_t, int64_t) {
  return at::empty_symint(size, bits.options());
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
  const auto order = *memory_order(dx); // freshly made, so dense
  const auto g = in_memory_order(grad_output.expand(dx.sizes()), order);
  const auto x = in_memory_order(self.expand(dx.sizes()), order);
  backend(dx.device())
      .gate_select(
          flat(dx), g.const_data_ptr(), x.const_data_ptr(), dx.mutable_data_ptr(), min, max);
  return dx;
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

at::Tensor decode_gate(const at::Tensor& grad, const at::Tensor& bits, Gate gate, int64_t order) {
  const auto g = in_memory_order(grad, order);
  const auto saved = checked_bits(bits, g, planes(gate));
  const auto dx = empty_in_order(grad.sizes(), order, grad.options());
  backend(g.device())
      .gate_decode(flat(g), g.const_data_ptr(), words_of(saved), dx.mutable_data_ptr(), gate);
  return dx;
}

} // namespace clampgrad
