#pragma once
// Note [Dim order]
// ~~~~~~~~~~~~~~~~
// The order in which the dimensions of a result lie in memory: Tensor.dim_order(), as one integer.
// Bits are packed in this order, so that forward and backward run over flat memory; the node of the
// call saves it. 0 is the order of a contiguous tensor. Any other dense layout is the permutation
// of its dimensions from the outermost to the innermost, four bits per dimension, the innermost
// lowest. No permutation makes 0, because only one dimension has the number 0.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace clampgrad {

constexpr int64_t kContiguous = 0;

// Nothing for a tensor that is not dense: it is handled through a copy.
std::optional<int64_t> dim_order_of(const at::Tensor& tensor);

// The order that a copy of `tensor` has, and an elementwise result: its own where it is dense.
int64_t dim_order_of_copy(const at::Tensor& tensor);

// Of a compact tensor. One that is made in this order has the same strides, those of dimensions of
// size 1 too, of which dim_order_of() promises nothing.
std::optional<int64_t> dim_order_of_strides(const at::Tensor& tensor);

// A view whose dimensions are in this order: contiguous where `tensor` lies so.
at::Tensor permuted(const at::Tensor& tensor, int64_t dim_order);

// Note [Repeated inputs]
// ~~~~~~~~~~~~~~~~~~~~~~
// A bound that is broadcast over outer dimensions, or the gradient of a sum, repeats in memory
// order. The loops of the CPU read it again and again instead of having a copy made of all of it.
// They go by words of 64 elements, so what repeats must be whole words: an input has a period,
// which is a multiple of 64 elements, or all of them. CUDA's kernels take inputs that are there in
// full.
struct Repeated {
  at::Tensor tensor;
  int64_t period; // in elements
};
Repeated repeated_in_dim_order(const at::Tensor& tensor, int64_t dim_order);

// For a tensor that is written whole: on the CPU past the dispatcher, which costs more than the
// memory. The strides of dimensions of size 1 are those of a compact tensor.
at::Tensor empty_in_dim_order(
    c10::SymIntArrayRef sizes, int64_t dim_order, const at::TensorOptions& options);

// As empty_in_dim_order(). But if `like` lies in this order and is not channels last, the strides
// of dimensions of size 1 are those that it has.
at::Tensor empty_like_in_dim_order(const at::Tensor& like, int64_t dim_order);

} // namespace clampgrad
