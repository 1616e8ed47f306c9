#pragma once
// Numbers as bounds.

#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>

#include <optional>

namespace clampgrad {

// A number that a compiler traces, so that its value is not to be asked for.
bool is_symbolic(const std::optional<at::Scalar>& bound);

bool is_nan(const std::optional<at::Scalar>& bound);

// The bound as the forward sees it: rounded to the dtype of the result, in which alone an element
// can be equal to it. Raises where torch.clamp does: beyond the range of the dtype.
std::optional<at::Scalar> in_dtype(const std::optional<at::Scalar>& bound, at::ScalarType dtype);

} // namespace clampgrad
