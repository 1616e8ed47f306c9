#pragma once
// What the formulas of derivatives.yaml call besides operators.

#include "base/path.h"
#include "kernels/fused.h"

#include <ATen/core/Tensor.h>

#include <array>

namespace clampgrad {

// ---- What the arguments get of a gradient -------------------------------------------------------
// From what the operator was called with, or from the bits that a fused forward has saved.

// clamp between numbers, in the dtype of args[0].
struct NumberShares {
  std::array<at::Tensor, 1> args;
  Number min, max;
  Convention convention;
};

// maximum and its kind.
struct ExtremumShares {
  std::array<at::Tensor, 2> args;
  Extremum op;
  Convention convention;
  int64_t differentiated;
};

// clamp between Tensors; an undefined bound is absent.
struct ClampShares {
  std::array<at::Tensor, 3> args;
  Convention convention;
  int64_t differentiated;
};

using SavedNumber = Saved<NumberBackward>;
using SavedPair = Saved<PairBackward>;
using SavedTriple = Saved<TripleBackward>;

// What the arguments get, in their shapes; undefined where it is not wanted. `of` is one of the
// structs above. Bits are read by a fused kernel where the gradient is a plain tensor that nobody
// differentiates again. All else is composed of ATen operators, so that it can be differentiated,
// traced, batched and sharded.
template <typename Of, size_t n>
std::array<at::Tensor, n> gradients(
    const Of& of, const at::Tensor& grad, const std::array<bool, n>& wanted);

// The same of a clamp between numbers, which is called most.
at::Tensor clamp_backward(const at::Tensor& grad, const SavedNumber& of);

// The tangent of the result, from the arguments. Raises as if_linear().
template <typename Of, size_t n>
at::Tensor tangent(const Of& of, std::array<at::Tensor, n> tangents);

// Of _pseudo_gradient.
at::Tensor pseudo_gradient_backward(
    const at::Tensor& grad,
    const at::Tensor& grad_output,
    const at::Tensor& inside,
    const at::Tensor& below,
    const at::Tensor& above,
    Convention c);

// A formula that is linear in the gradient serves forward mode too. Raises NotImplementedError for
// a pseudo-gradient that is not linear.
at::Tensor if_linear(const at::Tensor& tangent, Convention c);

// Note [What is being differentiated]
// ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
// min_norm depends on which arguments are being differentiated: those that require grad or carry a
// tangent when the operator runs, at the level of torch.func where it runs. Which of them a later
// autograd.grad asks for does not matter. So this is computed in the forward and saved, as one bit
// per argument: bit i is argument i. (torchgen's grad_input_mask is computed in the backward.) A
// formula in derivatives.yaml that uses `differentiated` gets a node that saves it. A batched
// tensor of vmap hides it, so batch rules decide nothing.
template <typename... Args>
int64_t differentiated_inputs(const Args&... args) {
  int64_t bits = 0, i = 0;
  ((bits |= int64_t{any_tensor(is_differentiated, args)} << i++), ...);
  return bits;
}

} // namespace clampgrad
