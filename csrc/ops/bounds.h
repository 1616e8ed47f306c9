#pragma once
// Numbers as bounds.

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <optional>

namespace clampgrad {

// Absent, or a number whose value is known now and lies on the real line.
bool is_real_number(const std::optional<at::Scalar>& bound);

// The bound as the forward sees it: rounded to the dtype of the result, in which alone an element
// can be equal to it. Raises where torch.clamp does: beyond the range of the dtype.
std::optional<at::Scalar> in_dtype(const std::optional<at::Scalar>& bound, at::ScalarType dtype);

} // namespace clampgrad
