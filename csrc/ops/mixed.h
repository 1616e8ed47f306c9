#pragma once
// Clamps with one number and one Tensor for bounds, for Python: torch has no such operator.

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <optional>
#include <string_view>

namespace clampgrad {

struct MixedBound {
  std::optional<at::Scalar> number;
  std::optional<at::Tensor> tensor;
};

at::Tensor clamp_mixed(
    const at::Tensor& self,
    const MixedBound& min,
    const MixedBound& max,
    std::string_view gradient,
    bool maximize);
at::Tensor& clamp_mixed_(
    at::Tensor& self,
    const MixedBound& min,
    const MixedBound& max,
    std::string_view gradient,
    bool maximize);
at::Tensor& clamp_mixed_out(
    const at::Tensor& self,
    const MixedBound& min,
    const MixedBound& max,
    std::string_view gradient,
    bool maximize,
    at::Tensor& out);

} // namespace clampgrad
