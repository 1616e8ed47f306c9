// Operators whose kernels are ATen's own: below autograd nothing of ours is left of them.

#include "Kernels.h"
#include "base/number.h"
#include "kernels/check.h"
#include "kernels/rules/conventions.h"

#include <ATen/ops/clamp.h>

namespace clampgrad::native {

at::Tensor clamp_pinned(
    const at::Tensor& self, const Number& min, const Number& max, int64_t gate) {
  checked_enum<Gate>(gate, kGates);
  return at::clamp(self, min, max);
}

at::Tensor clamp_straight_through(const at::Tensor& self, const Number& min, const Number& max) {
  return at::clamp(self, min, max);
}

} // namespace clampgrad::native
