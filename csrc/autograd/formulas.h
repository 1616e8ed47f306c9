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

// The gradient through a recorded gate.
at::Tensor gate_backward(
    const at::Tensor& grad, const at::Tensor& bits, int64_t gate, int64_t order);

// Of _pseudo_gradient.
at::Tensor pseudo_gradient_backward(
    const at::Tensor& grad,
    const at::Tensor& grad_output,
    const at::Tensor& inside,
    const at::Tensor& below,
    const at::Tensor& above,
    int64_t gate);

// A formula that is linear in the gradient serves forward mode too. Both raise NotImplementedError
// for a pseudo-gradient that is not linear.
at::Tensor if_linear(const at::Tensor& tangent, int64_t gate);
void check_has_tangent(Sharing sharing);

} // namespace clampgrad
