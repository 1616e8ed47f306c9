#pragma once
// The fused kernels: a forward that makes the result and the bits in one pass, and a backward that
// makes all gradients in one pass. They know nothing of autograd.

#include "base/bounds.h"
#include "kernels/call.h"

#include <ATen/core/Tensor.h>

#include <array>
#include <tuple>

namespace clampgrad {

// The result of clamp and the bits. The bounds are not NaN.
std::tuple<at::Tensor, at::Tensor> clamp_forward(
    const at::Tensor& self, const Number& min, const Number& max, Convention c, int64_t dim_order);

// clamp_; returns the bits.
at::Tensor clamp_forward_(
    const at::Tensor& self, const Number& min, const Number& max, Convention c, int64_t dim_order);

// The same of two Tensors or three, of one shape, dtype and device.
template <typename Call, typename... Others>
std::tuple<at::Tensor, at::Tensor> fused_forward(
    const Call& call, int64_t dim_order, const at::Tensor& self, const Others&... others);

// What the node of a forward has saved, and the call that reads it.
template <typename Call>
struct Saved {
  at::Tensor bits;
  Call call;
  int64_t dim_order;
};

// A gradient for each argument that one is wanted for. All have the shape of grad.
template <typename Call>
std::array<at::Tensor, Call::kOut> fused_backward(
    const Saved<Call>& of, const at::Tensor& grad, const std::array<bool, Call::kOut>& wanted);

} // namespace clampgrad
