#pragma once
// Clamps with one number and one Tensor for bounds, which torch has no operator for.

#include "clampgrad/clampgrad.h"

#include <string_view>

namespace clampgrad {

at::Tensor clamp_mixed(
    const at::Tensor& self,
    const Bound& min,
    const Bound& max,
    std::string_view gradient,
    bool maximize);
at::Tensor& clamp_mixed_(
    at::Tensor& self, const Bound& min, const Bound& max, std::string_view gradient, bool maximize);
at::Tensor& clamp_mixed_out(
    const at::Tensor& self,
    const Bound& min,
    const Bound& max,
    std::string_view gradient,
    bool maximize,
    at::Tensor& out);

} // namespace clampgrad
