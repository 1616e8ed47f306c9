#pragma once
// Where arguments are Tensors: who gets which share of the gradient. The rules are those of
// docs/conventions.md. Composed of ATen operators, like the rest of this folder.

#include "kernels/rules/conventions.h"

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <tuple>

namespace clampgrad {

using OptionalTensor = std::optional<at::Tensor>;

// Note [What is being differentiated]
// ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
// min_norm depends on which arguments are being differentiated: those that require grad or carry a
// tangent when the operator runs, at the level of torch.func where it runs. Which of them a later
// autograd.grad asks for does not matter. So this is computed in the forward and saved, as one bit
// per argument: bit i is argument i. (torchgen's grad_input_mask is computed in the backward.) A
// formula in derivatives.yaml that uses `differentiated` gets a node that saves it. A batched
// tensor of vmap hides it, so batch rules decide nothing.
int64_t differentiated_inputs(const at::Tensor& self, const at::Tensor& other);
int64_t differentiated_inputs(
    const at::Tensor& self, const OptionalTensor& min, const OptionalTensor& max);

using PairGradients = std::tuple<at::Tensor, at::Tensor>;
using TripleGradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// maximum, minimum, fmax, fmin.
PairGradients extremum_backward(
    const at::Tensor& grad,
    const at::Tensor& self,
    const at::Tensor& other,
    Extremum op,
    Gradient gradient,
    int64_t differentiated,
    std::array<bool, 2> wanted);
at::Tensor extremum_jvp(
    const at::Tensor& self_t,
    const at::Tensor& other_t,
    const at::Tensor& self,
    const at::Tensor& other,
    Extremum op,
    Gradient gradient,
    int64_t differentiated);

// clamp; an undefined bound is absent.
TripleGradients clamp_tensors_backward(
    const at::Tensor& grad,
    const at::Tensor& self,
    const at::Tensor& min,
    const at::Tensor& max,
    Gradient gradient,
    bool maximize,
    int64_t differentiated,
    std::array<bool, 3> wanted);
at::Tensor clamp_tensors_jvp(
    const at::Tensor& self_t,
    const at::Tensor& min_t,
    const at::Tensor& max_t,
    const at::Tensor& self,
    const at::Tensor& min,
    const at::Tensor& max,
    Gradient gradient,
    int64_t differentiated);

// From what was recorded (csrc/kernels/rules/conventions.h); all arguments have the shape of grad.
PairGradients pair_backward(
    const at::Tensor& grad,
    const at::Tensor& bits,
    Sharing sharing,
    bool clamps_from_below,
    int64_t order,
    std::array<bool, 2> wanted);
at::Tensor pair_jvp(
    const at::Tensor& self_t,
    const at::Tensor& other_t,
    const at::Tensor& bits,
    Sharing sharing,
    int64_t order);
TripleGradients triple_backward(
    const at::Tensor& grad,
    const at::Tensor& bits,
    Sharing sharing,
    int64_t order,
    std::array<bool, 3> wanted);
at::Tensor triple_jvp(
    const at::Tensor& self_t,
    const at::Tensor& min_t,
    const at::Tensor& max_t,
    const at::Tensor& bits,
    Sharing sharing,
    int64_t order);

} // namespace clampgrad
