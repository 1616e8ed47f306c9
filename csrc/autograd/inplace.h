#pragma once

#include "base/number.h"
#include "kernels/rules/conventions.h"

#include <ATen/core/Tensor.h>

namespace clampgrad {

// clamp_ of a plain tensor that requires grad and carries no tangent: one pass, which records the
// gate. Note [In place, by hand]
at::Tensor& record_clamp_(
    at::Tensor& self, const Number& min, const Number& max, Gate gate, int64_t order);

} // namespace clampgrad
