#include "ops/mixed.h"

#include "Operators.h"
#include "ops/convention.h"

#include <ATen/ops/result_type.h>
#include <ATen/ops/scalar_tensor.h>

namespace clampgrad {

namespace {

using at::Tensor;

// The number as a constant Tensor that promotes as the number does.
Tensor as_tensor(const Bound& bound, const Tensor& self) {
  if (bound.tensor) {
    return *bound.tensor;
  }
  const auto dtype = at::result_type(self, *bound.number);
  return at::scalar_tensor(*bound.number, self.options().dtype(dtype));
}

// Least norm and the pseudo-gradients look at all three at once. The others give a number its own
// rule, one bound after the other.
bool at_once(Convention c) {
  return c.gradient == Gradient::min_norm || is_pseudo(c.gradient);
}

Tensor raised(const Tensor& self, const Bound& min, std::string_view gradient, bool maximize) {
  return min.number ? clampgrad::clamp_min(self, *min.number, gradient, maximize)
                    : clampgrad::clamp_min(self, *min.tensor, gradient, maximize);
}

} // namespace

Tensor clamp_mixed(
    const Tensor& self,
    const Bound& min,
    const Bound& max,
    std::string_view gradient,
    bool maximize) {
  if (at_once(parse_convention(gradient, maximize))) {
    return clampgrad::clamp(self, as_tensor(min, self), as_tensor(max, self), gradient, maximize);
  }
  const auto x = raised(self, min, gradient, maximize);
  return max.number ? clampgrad::clamp_max(x, *max.number, gradient, maximize)
                    : clampgrad::clamp_max(x, *max.tensor, gradient, maximize);
}

Tensor& clamp_mixed_(
    Tensor& self, const Bound& min, const Bound& max, std::string_view gradient, bool maximize) {
  if (at_once(parse_convention(gradient, maximize))) {
    return clampgrad::clamp_(self, as_tensor(min, self), as_tensor(max, self), gradient, maximize);
  }
  if (min.number) {
    clampgrad::clamp_min_(self, *min.number, gradient, maximize);
    return clampgrad::clamp_max_(self, *max.tensor, gradient, maximize);
  }
  clampgrad::clamp_min_(self, *min.tensor, gradient, maximize);
  return clampgrad::clamp_max_(self, *max.number, gradient, maximize);
}

Tensor& clamp_mixed_out(
    const Tensor& self,
    const Bound& min,
    const Bound& max,
    std::string_view gradient,
    bool maximize,
    Tensor& out) {
  return clampgrad::clamp_outf(
      self, as_tensor(min, self), as_tensor(max, self), gradient, maximize, out);
}

} // namespace clampgrad
