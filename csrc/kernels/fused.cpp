#include "kernels/fused.h"

#include "Kernels.h"
#include "kernels/cpu/run_loop.h"
#include "kernels/dim_order.h"
#include "kernels/rules/conventions.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bitwise_right_shift.h>

#include <algorithm>

namespace clampgrad {

using at::Tensor;

namespace {

// Puts the inputs into `memory` and runs the kernel on them. They have the shape of the result,
// which lies in this order. The kernel is that of the device: base/path.cpp takes tensors of other
// devices elsewhere.
template <typename Call>
void run_kernel(
    const Call& call, at::TensorList in, at::IntArrayRef dim_order, Buffers<Call>& memory) {
  const auto device = in[0].device();
  const auto dtype = in[0].scalar_type();
#if defined(CLAMPGRAD_WITH_CUDA)
  if (device.is_cuda()) {
    std::array<StridedInput, Call::kIn> from;
    cuda::Layouts<Call> layouts;
    for (int k = 0; k < Call::kIn; ++k) {
      from[k] = to_strided_input(in[k], dim_order);
      if (!accepts_strided_inputs<Call> && !from[k].layout.is_flat()) {
        from[k] = {from[k].tensor.contiguous(), Layout::flat(memory.n)};
      }
      memory.in[k] = from[k].tensor.const_data_ptr();
      layouts[k] = from[k].layout;
    }
    return cuda::run(device, dtype, memory, layouts, call);
  }
#endif
  TORCH_INTERNAL_ASSERT(device.is_cpu());
  std::array<RepeatedInput, Call::kIn> from;
  for (int k = 0; k < Call::kIn; ++k) {
    from[k] = to_repeated_input(in[k], dim_order);
    memory.in[k] = from[k].tensor.const_data_ptr();
    memory.period_words[k] = word_count(from[k].period_elements);
  }
  cpu::run_loop(call, dtype, memory);
}

} // namespace

// ---- Forward ------------------------------------------------------------------------------------

NumberValues number_values(
    const Tensor& self, const OptionalScalar& min, const OptionalScalar& max) {
  NumberValues call = {};
  call.has_lo = min.has_value();
  call.has_hi = max.has_value();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "clamp", [&] {
    const auto in_lane = [&](const OptionalScalar& bound) {
      const auto number = bound ? round_to_dtype(bound, self)->to<scalar_t>() : scalar_t();
      return c10::bit_cast<Lane<scalar_t>>(number);
    };
    call.lo = in_lane(min);
    call.hi = in_lane(max);
  });
  return call;
}

template <typename Call>
Tensor fused_forward(const Call& call, at::TensorList in, const Tensor& y) {
  const auto n = y.numel();
  const c10::SymInt bytes = bit_buffer_bytes(bits_per_element(call.gradient, Call::kIn), n);
  auto bits = empty_in_dim_order(bytes, {}, y.options().dtype(at::kByte));
  Buffers<Call> memory = {};
  // Get the pointer before run_kernel() reads the inputs: this call copies a copy-on-write y, and
  // in place y is an input.
  memory.out[0] = y.mutable_data_ptr();
  memory.bits = static_cast<uint64_t*>(bits.mutable_data_ptr());
  memory.n = n;
  run_kernel(call, in, dim_order_of(y), memory);
  return bits;
}

template Tensor fused_forward(const NumberForward&, at::TensorList, const Tensor&);
template Tensor fused_forward(const TensorForward<2>&, at::TensorList, const Tensor&);
template Tensor fused_forward(const TensorForward<3>&, at::TensorList, const Tensor&);

// ---- Backward -----------------------------------------------------------------------------------

namespace {

// Checks the bits of the elements of `like`, because a saved-tensor hook may move or cast them.
c10::MaybeOwned<Tensor> check_saved_bits(const Tensor& bits, const Tensor& like, int per_element) {
  const auto bytes = bit_buffer_bytes(per_element, like.numel());
  TORCH_CHECK(
      bits.scalar_type() == at::kByte && bits.is_contiguous() && bits.numel() == bytes &&
          bits.device() == like.device(),
      "clampgrad: saved bits must be those that were saved, not ",
      bits.options(),
      " of ",
      bits.sizes());
  // Kernels read whole words, and what a hook returns may begin at any byte.
  const bool aligned = reinterpret_cast<uintptr_t>(bits.const_data_ptr()) % alignof(uint64_t) == 0;
  return aligned ? c10::MaybeOwned<Tensor>::borrowed(bits)
                 : c10::MaybeOwned<Tensor>::owned(bits.clone());
}

} // namespace

template <size_t n>
std::array<Tensor, n> fused_backward(
    const SavedForBackward<n>& saved,
    const Tensor& grad,
    const std::array<bool, n>& grad_input_mask) {
  const auto bits =
      check_saved_bits(saved.bits, grad, bits_per_element(saved.call.convention.gradient, n));
  Buffers<Backward<n>> memory = {};
  memory.bits = static_cast<const uint64_t*>(bits->const_data_ptr());
  memory.n = grad.numel();
  std::array<Tensor, n> to;
  for (size_t i = 0; i < n; ++i) {
    if (grad_input_mask[i]) {
      to[i] = empty_in_dim_order(grad.sym_sizes(), saved.dim_order, grad.options());
      memory.out[i] = to[i].mutable_data_ptr();
    }
  }
  run_kernel(saved.call, grad, saved.dim_order, memory);
  return to;
}

template std::array<Tensor, 1> fused_backward(
    const SavedForBackward<1>&, const Tensor&, const std::array<bool, 1>&);
template std::array<Tensor, 2> fused_backward(
    const SavedForBackward<2>&, const Tensor&, const std::array<bool, 2>&);
template std::array<Tensor, 3> fused_backward(
    const SavedForBackward<3>&, const Tensor&, const std::array<bool, 3>&);

// ---- As an operator -----------------------------------------------------------------------------

namespace {

// Sets `mask` where bit v of `values` is set, v being the number that the bits of an element make.
void unpack_mask(const uint64_t* bits, int64_t per_element, int64_t values, bool* mask, int64_t n) {
  cpu::parallel_for_words(word_count(n), [=](int64_t begin, int64_t end) {
    for (int64_t w = begin; w < end; ++w) {
      uint64_t chosen = 0;
      for (int64_t v = 0; v < int64_t{1} << per_element; ++v) {
        uint64_t equal_v = -(values >> v & 1); // all ones if v is one of them
        for (int64_t b = 0; b < per_element; ++b) {
          equal_v &= bits[b * word_count(n) + w] ^ ((v >> b & 1) - uint64_t{1});
        }
        chosen |= equal_v;
      }
      const auto count = std::min(n - w * kElementsPerWord, kElementsPerWord);
      for (int64_t i = 0; i < count; ++i) {
        mask[w * kElementsPerWord + i] = chosen >> i & 1;
      }
    }
  });
}

} // namespace

// Only double backward and traced calls come here. Other devices use ATen operators: on a CPU these
// would take longer than all else in a second derivative.
Tensor native::mask(
    const Tensor& bits,
    c10::SymIntArrayRef size,
    int64_t values,
    int64_t bits_per_element,
    at::IntArrayRef dim_order) {
  TORCH_CHECK_VALUE(
      bits_per_element >= 1 && bits_per_element <= 3,
      "clampgrad: an element has one to three bits");
  const auto mask = empty_in_dim_order(size, dim_order, bits.options().dtype(at::kBool));
  if (mask.is_meta()) {
    return mask;
  }
  const auto n = mask.numel();
  const auto saved = check_saved_bits(bits, mask, static_cast<int>(bits_per_element));
  if (mask.is_cpu()) {
    const auto* words_of_bits = static_cast<const uint64_t*>(saved->const_data_ptr());
    unpack_mask(words_of_bits, bits_per_element, values, mask.mutable_data_ptr<bool>(), n);
    return mask;
  }
  // The bits by their place in a byte, and the number that those of an element make.
  const auto bytes = saved->view({bits_per_element, 8 * word_count(n), 1});
  const auto each = bytes.bitwise_right_shift(at::arange(8, bits.options())).bitwise_and_(1);
  const auto weights = at::arange(bits_per_element, bits.options()).view({-1, 1, 1});
  const auto numbers = each.bitwise_left_shift_(weights).sum(0, /*keepdim=*/false, at::kByte);
  const auto chosen = at::bitwise_right_shift(values, numbers).bitwise_and_(1);
  permute_to_order(mask, dim_order).view(n).copy_(chosen.view(-1).narrow(0, 0, n));
  return mask;
}

} // namespace clampgrad
