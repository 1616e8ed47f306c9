// Operators whose kernels are ATen's own, after a check: below autograd nothing of ours is left of
// them.

#include "Kernels.h"
#include "kernels/check.h"
#include "ops/recorded.h"

#include <ATen/ops/clamp.h>
#include <ATen/ops/fmax.h>
#include <ATen/ops/fmin.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>

namespace clampgrad::native {

at::Tensor clamp_pinned(
    const at::Tensor& self, const Number& min, const Number& max, int64_t gate) {
  checked_enum<Gate>(gate, kGates);
  return at::clamp(self, min, max);
}

at::Tensor clamp_tensors_pinned(
    const at::Tensor& self,
    const OptionalTensor& min,
    const OptionalTensor& max,
    int64_t gradient,
    bool) {
  checked_enum<Gradient>(gradient, kGradients);
  return at::clamp(self, min, max);
}

at::Tensor extremum_pinned(
    const at::Tensor& self, const at::Tensor& other, int64_t op, int64_t gradient) {
  checked_enum<Gradient>(gradient, kGradients);
  constexpr decltype(&at::maximum) kAtens[] = {at::maximum, at::minimum, at::fmax, at::fmin};
  return kAtens[static_cast<size_t>(checked_enum<Extremum>(op, kExtrema))](self, other);
}

} // namespace clampgrad::native
