#pragma once
// The fused kernels: a forward that makes the result and the bits in one pass, and a backward that
// makes all gradients in one pass. They know nothing of autograd.

#include "base/bounds.h"
#include "kernels/call.h"

#include <array>

namespace clampgrad {

// The bounds are not NaN.
NumberValues number_values(const at::Tensor& self, const Number& min, const Number& max);

// Writes to `y`, which is dense and may be an input; returns the bits. One shape, dtype, device.
template <typename Call>
at::Tensor fused_forward(const Call& call, at::TensorList in, const at::Tensor& y);

// What the node of a forward has saved, and the call that reads it.
template <size_t n>
struct Saved {
  at::Tensor bits;
  Backward<n> call;
  at::IntArrayRef dim_order;
};

// A gradient for each argument whose gradient is wanted. All have the shape of grad.
template <size_t n>
std::array<at::Tensor, n> fused_backward(
    const Saved<n>& of, const at::Tensor& grad, const std::array<bool, n>& wanted);

} // namespace clampgrad
