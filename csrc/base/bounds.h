#pragma once
// Numbers as bounds.

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <optional>

namespace clampgrad {

// A bound that is a number, or none.
using Number = std::optional<at::Scalar>;

// These two are false for a number that a compiler traces: its value is not to be asked for.
bool is_nan(const Number& bound);

// Beyond the range of the dtype on the CPU, of the type that is computed in on others. That is for
// torch.clamp to judge: beside a NaN, and where there are no values, it is no error.
bool overflows(const Number& bound, const at::Tensor& self);

// Raises as torch.clamp does. For the operators of backward: the others ask torch.clamp.
void check_has_bound(const Number& min, const Number& max);

// The bound as the forward of `self` sees it: rounded to its dtype, in which alone an element can
// be equal to it. One that overflows stays. A compiler may trace the number.
Number in_dtype(const Number& bound, const at::Tensor& self);

} // namespace clampgrad
