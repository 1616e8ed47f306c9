// Operators whose kernels are ATen's own: below autograd nothing of ours is left of them.

#include "Kernels.h"
#include "kernels/check.h"
#include "kernels/gate.h"
#include "ops/number.h"

#include <ATen/ops/clamp.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/clamp_min.h>

namespace clampgrad::native {

at::Tensor clamp_pinned(
    const at::Tensor& self, const Number& min, const Number& max, int64_t gate) {
  checked_enum<Gate>(gate, kGates);
  return at::clamp(self, min, max);
}

at::Tensor clamp_straight_through(const at::Tensor& self, const Number& min, const Number& max) {
  return at::clamp(self, min, max);
}

at::Tensor clamp_mingrad(const at::Tensor& self, const Number& min, const Number& max) {
  return at::clamp(self, min, max);
}

at::Tensor& clamp_mingrad_(at::Tensor& self, const Number& min, const Number& max) {
  return at::clamp_(self, min, max);
}

at::Tensor& clamp_mingrad_out(
    const at::Tensor& self, const Number& min, const Number& max, at::Tensor& out) {
  return at::clamp_out(out, self, min, max);
}

at::Tensor clamp_min_mingrad(const at::Tensor& self, const at::Scalar& min) {
  return at::clamp_min(self, min);
}

at::Tensor& clamp_min_mingrad_(at::Tensor& self, const at::Scalar& min) {
  return at::clamp_min_(self, min);
}

at::Tensor& clamp_min_mingrad_out(const at::Tensor& self, const at::Scalar& min, at::Tensor& out) {
  return at::clamp_min_out(out, self, min);
}

at::Tensor clamp_max_mingrad(const at::Tensor& self, const at::Scalar& max) {
  return at::clamp_max(self, max);
}

at::Tensor& clamp_max_mingrad_(at::Tensor& self, const at::Scalar& max) {
  return at::clamp_max_(self, max);
}

at::Tensor& clamp_max_mingrad_out(const at::Tensor& self, const at::Scalar& max, at::Tensor& out) {
  return at::clamp_max_out(out, self, max);
}

} // namespace clampgrad::native
