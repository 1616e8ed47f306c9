#pragma once
// Numbers as bounds.

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <optional>

namespace clampgrad {

// A number that a compiler traces, so that its value is not to be asked for.
bool is_symbolic(const std::optional<at::Scalar>& bound);

bool is_nan(const std::optional<at::Scalar>& bound);

// Raises as torch.clamp does. For the operators of backward: the others ask torch.clamp.
void check_has_bound(const std::optional<at::Scalar>& min, const std::optional<at::Scalar>& max);

// The bound as the forward of `self` sees it: rounded to its dtype, in which alone an element can
// be equal to it. Raises where torch.clamp does: on the CPU beyond the range of the dtype, on
// others beyond that of the type it computes in.
std::optional<at::Scalar> in_dtype(const std::optional<at::Scalar>& bound, const at::Tensor& self);

} // namespace clampgrad
