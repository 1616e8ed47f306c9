#pragma once
// Functions that the formulas of derivatives.yaml call.

#include "base/path.h"
#include "kernels/fused.h"

namespace clampgrad {

inline at::Tensor cast(const at::Tensor& t, at::ScalarType dtype) {
  return t.scalar_type() == dtype ? t : t.to(dtype); // to() takes time at each level of torch.func
}

// Shares are computed from the arguments of the operator, which these structs hold, or from the
// bits that a fused forward has saved.

// clamp between numbers, in the dtype of args[0].
struct ScalarClampArgs {
  std::array<at::Tensor, 1> args;
  OptionalScalar min, max;
  Convention convention;
};

// An extremum, or clamp by one Tensor.
struct PairArgs {
  std::array<at::Tensor, 2> args;
  PairOperator op;
  Convention convention;
  int64_t differentiated_mask;
};

// clamp between Tensors; an undefined bound is absent.
struct TensorClampArgs {
  std::array<at::Tensor, 3> args;
  Convention convention;
  int64_t differentiated_mask;
};

// What the arguments get, in the shape of the result: autograd sums it for one that was broadcast.
// Undefined where it is not wanted. `source` is one of the structs above. A fused kernel reads bits
// where the gradient is a plain tensor that nobody differentiates again. All else is composed, to
// be differentiated, traced, batched and sharded.
template <typename Source, size_t n>
std::array<at::Tensor, n> gradients(
    const Source& source, const at::Tensor& grad, const std::array<bool, n>& grad_input_mask);

// gradients() for number bounds.
at::Tensor clamp_backward(const at::Tensor& grad, const SavedForBackward<1>& source);

// The tangent of the result, from the arguments. Raises like check_linear().
template <typename Source, size_t n>
at::Tensor tangent(const Source& source, std::array<at::Tensor, n> tangents);

// Returns the tangent t. Raises NotImplementedError for a pseudo-gradient that is not linear.
at::Tensor check_linear(const at::Tensor& t, Gradient gradient);

// Note [What is being differentiated]
// ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
// min_norm depends on which arguments are being differentiated: those that require grad or carry a
// tangent when the operator runs, at its level of torch.func, whichever of them a later
// autograd.grad asks for. So this is computed in the forward (not in the backward, as torchgen's
// grad_input_mask), and a formula in derivatives.yaml that uses `differentiated` gets a node that
// saves it: bit i is argument i. A batched tensor of vmap hides it, so batch rules decide nothing.
template <typename... Args>
int64_t differentiated_mask_of(const Args&... args) {
  int64_t bits = 0, i = 0;
  ((bits |= int64_t{any_tensor(is_differentiated, args)} << i++), ...);
  return bits;
}

} // namespace clampgrad
