// For TorchScript alone: it compiles no Python function with defaults for keywords, and takes this
// operator for clampgrad.clamp_with_grad.

#include "Kernels.h"

namespace clampgrad::native {

using at::Scalar;
using at::Tensor;

constexpr auto kName = "with_grad";

Tensor clamp_with_grad(
    const Tensor& self,
    const std::optional<Scalar>& min,
    const std::optional<Scalar>& max,
    bool maximize) {
  return clamp(self, min, max, kName, maximize);
}

Tensor clamp_with_grad(
    const Tensor& self,
    const std::optional<Tensor>& min,
    const std::optional<Tensor>& max,
    bool maximize) {
  return clamp(self, min, max, kName, maximize);
}

Tensor clamp_with_grad(const Tensor& self, const Tensor& min, const Scalar& max, bool maximize) {
  return clamp(self, min, max, kName, maximize);
}

Tensor clamp_with_grad(const Tensor& self, const Scalar& min, const Tensor& max, bool maximize) {
  return clamp(self, min, max, kName, maximize);
}

} // namespace clampgrad::native
