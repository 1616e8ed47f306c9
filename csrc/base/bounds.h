#pragma once
// Numbers as bounds.

#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <optional>

namespace clampgrad {

// A bound that is a number, or none.
using Number = std::optional<at::Scalar>;

// A number that a compiler traces, so that its value is not to be asked for.
bool is_symbolic(const Number& bound);

bool is_nan(const Number& bound);

// Raises as torch.clamp does. For the operators of backward: the others ask torch.clamp.
void check_has_bound(const Number& min, const Number& max);

// The bound as the forward of `self`, of dtype T, sees it: rounded to its dtype, in which alone an
// element can be equal to it. Raises where torch.clamp does: on the CPU beyond the range of the
// dtype, on others beyond that of the type it computes in.
template <typename T>
T rounded(const at::Scalar& bound, const at::Tensor& self) {
  return self.is_cpu() ? bound.to<T>() : static_cast<T>(bound.to<at::opmath_type<T>>());
}

// The same where the dtype is not known yet, and a compiler may trace the number.
Number in_dtype(const Number& bound, const at::Tensor& self);

} // namespace clampgrad
