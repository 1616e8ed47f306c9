#pragma once
// The kernels of fused.h without bits, for the CPU: what a forward returns where no gradient is
// recorded. All arguments have one dtype. The values are those of ATen's kernels, but for the sign
// and the payload of a NaN, which stays the NaN that an argument has, the first one's if several
// have one.

#include "kernels/call.h"

#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>

namespace clampgrad {

// Both contiguous, of one shape. y may be x.
void compute_values(const NumberValues& call, const at::Tensor& x, const at::Tensor& y);

// The operands of `iter` are the result and the arguments. Only for fmax and fmin, the call says
// which of two zeros is the result: Note [Rows of ATen].
template <typename Call>
void compute_values(const Call& call, at::TensorIteratorBase& iter);

} // namespace clampgrad
