#pragma once
// The fused kernels: a forward that makes the result and the bits in one pass, and a backward that
// makes all gradients in one pass. They know nothing of autograd.

#include "base/bounds.h"
#include "kernels/call.h"

#include <array>

namespace clampgrad {

// The bounds are not NaN.
NumberValues number_values(
    const at::Tensor& self, const OptionalScalar& min, const OptionalScalar& max);

// Writes the result to `y`, which is dense and may be an input, and returns the bits. All tensors
// have one shape, dtype and device.
template <typename Call>
at::Tensor fused_forward(const Call& call, at::TensorList in, const at::Tensor& y);

// The bits that the node of a forward has saved, and the call that reads them.
template <size_t n>
struct SavedForBackward {
  at::Tensor bits;
  Backward<n> call;
  at::IntArrayRef dim_order;
};

// Returns a gradient for each argument whose bit in grad_input_mask is set. All have the shape of
// grad.
template <size_t n>
std::array<at::Tensor, n> fused_backward(
    const SavedForBackward<n>& saved,
    const at::Tensor& grad,
    const std::array<bool, n>& grad_input_mask);

} // namespace clampgrad
