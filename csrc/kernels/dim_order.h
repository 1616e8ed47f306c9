#pragma once
// Note [Dim order]
// ~~~~~~~~~~~~~~~~
// The order in which the dimensions of a result lie in memory, from the outermost to the innermost:
// Tensor.dim_order(), but empty for a contiguous tensor. Bits are packed in this order, so that
// forward and backward run over flat memory; the node of the call saves it.

#include "kernels/layout.h"

#include <ATen/core/Tensor.h>

#include <vector>

namespace clampgrad {

// Memory for the result of an elementwise operator, broadcast and laid out as torch's own.
at::Tensor empty_result(at::TensorList args);

// A tensor made in this order has the strides of `dense`, also those of dimensions of size 1.
std::vector<int64_t> dim_order_of(const at::Tensor& dense);

// For a tensor that is written whole: on the CPU past the dispatcher, which costs more than the
// memory. Raises where `dim_order` is no permutation, because it is an argument of operators.
at::Tensor empty_in_dim_order(
    c10::SymIntArrayRef sizes, at::IntArrayRef dim_order, const at::TensorOptions& options);

// A view whose dimensions are in this order: contiguous where `tensor` lies so.
at::Tensor permute_to_order(const at::Tensor& tensor, at::IntArrayRef dim_order);

// An input of CUDA's kernels: Note [Inputs where they lie]. `tensor` is a copy in this order where
// the layout would have too many dimensions.
struct StridedInput {
  at::Tensor tensor;
  Layout layout;
};
StridedInput to_strided_input(const at::Tensor& tensor, at::IntArrayRef dim_order);

// Note [Repeated inputs]
// ~~~~~~~~~~~~~~~~~~~~~~
// On a CPU, a bound that is broadcast over outer dimensions, or the gradient of a sum, repeats in
// memory order, and the loops read it again and again. They go by words of 64 elements, so what
// repeats must be whole words: an input has a period, which is a multiple of 64 elements, or all of
// them. What does not repeat so is copied.
struct RepeatedInput {
  at::Tensor tensor;
  int64_t period_elements;
};
RepeatedInput to_repeated_input(const at::Tensor& tensor, at::IntArrayRef dim_order);

} // namespace clampgrad
