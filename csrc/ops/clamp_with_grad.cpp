// For TorchScript alone: it compiles no Python function with defaults for keywords, and takes this
// operator for clampgrad.clamp_with_grad.

#include "Kernels.h"

namespace clampgrad::native {

#define CLAMPGRAD_WITH_GRAD(Min, Max)                                          \
  at::Tensor clamp_with_grad(                                                  \
      const at::Tensor& self, const Min& min, const Max& max, bool maximize) { \
    return clamp(self, min, max, "with_grad", maximize);                       \
  }

CLAMPGRAD_WITH_GRAD(std::optional<at::Scalar>, std::optional<at::Scalar>)
CLAMPGRAD_WITH_GRAD(std::optional<at::Tensor>, std::optional<at::Tensor>)
CLAMPGRAD_WITH_GRAD(at::Tensor, at::Scalar)
CLAMPGRAD_WITH_GRAD(at::Scalar, at::Tensor)
#undef CLAMPGRAD_WITH_GRAD

} // namespace clampgrad::native
