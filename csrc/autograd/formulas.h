#pragma once
// What the formulas of derivatives.yaml call besides operators. Composed of ATen operators, so
// that each can be differentiated again, traced, batched and sharded.

#include "autograd/shares.h"
#include "kernels/backend.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <optional>

namespace clampgrad {

// The gradient of self by `gate`, where the forward was clamp(self, min, max). The bounds are in
// the dtype of self already.
at::Tensor clamp_pinned_backward(
    const at::Tensor& grad,
    const at::Tensor& self,
    const Number& min,
    const Number& max,
    int64_t gate);

// The tangent; raises NotImplementedError for a gate that is not linear.
at::Tensor clamp_pinned_jvp(
    const at::Tensor& tangent,
    const at::Tensor& self,
    const Number& min,
    const Number& max,
    int64_t gate);

// The gradient, and the tangent, through a recorded gate.
at::Tensor gate_backward(
    const at::Tensor& grad, const at::Tensor& bits, int64_t gate, int64_t order);
at::Tensor gate_jvp(const at::Tensor& tangent, const at::Tensor& bits, int64_t gate, int64_t order);

// Of _pseudo_gradient. The tangent raises NotImplementedError.
at::Tensor pseudo_gradient_backward(
    const at::Tensor& grad,
    const at::Tensor& grad_output,
    const at::Tensor& inside,
    const at::Tensor& below,
    const at::Tensor& above,
    int64_t gate);
at::Tensor pseudo_gradient_jvp(const at::Tensor& tangent);

// Raises NotImplementedError for a pseudo-gradient that is not linear.
void check_has_tangent(Sharing sharing);

// A fused kernel may take this gradient: a plain tensor that nobody differentiates again.
bool takes_kernel(const at::Tensor& grad);

} // namespace clampgrad
