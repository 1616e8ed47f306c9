#pragma once
// The order in which the elements of a result lie in memory, as one integer.
//
// A gate is packed in memory order, so that forward and backward run over flat memory. 0 is the
// order of a contiguous tensor. Any other dense layout is the permutation of its dimensions from
// the outermost to the innermost, four bits a dimension, the innermost lowest; a permutation of at
// least two dimensions is never 0, for dimension 0 is then not everywhere.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace clampgrad {

constexpr int64_t kContiguousOrder = 0;

// Nothing for a tensor that is not dense: it is handled through a contiguous copy.
std::optional<int64_t> memory_order(const at::Tensor& tensor);

// The elements of `tensor` as flat memory in this order: a view where they lie so, else a copy.
at::Tensor in_memory_order(const at::Tensor& tensor, int64_t order);

// For a result that is written whole: on the CPU past the dispatcher, which costs more than the
// memory.
at::Tensor empty_in_order(at::IntArrayRef sizes, int64_t order, at::TensorOptions options);

} // namespace clampgrad
