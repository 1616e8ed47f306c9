#pragma once
// The fused kernels: a forward that makes the result and the bits in one pass, and a backward that
// makes all gradients in one pass. They know nothing of autograd.

#include "base/bounds.h"
#include "kernels/call.h"

#include <array>

namespace clampgrad {

// The bounds are not NaN.
NumberForward number_forward(
    const at::Tensor& self, const Number& min, const Number& max, Convention c);

// Writes to `y`, which is dense and may be an input; returns the bits. One shape, dtype, device.
template <typename Call>
at::Tensor fused_forward(const Call& call, at::TensorList in, const at::Tensor& y);

// What the node of a forward has saved, and the call that reads it.
template <typename Call>
struct Saved {
  at::Tensor bits;
  Call call;
  at::IntArrayRef dim_order;
};

// A gradient for each argument whose gradient is wanted. All have the shape of grad.
template <typename Call>
std::array<at::Tensor, Call::kOut> fused_backward(
    const Saved<Call>& of, const at::Tensor& grad, const std::array<bool, Call::kOut>& wanted);

} // namespace clampgrad
