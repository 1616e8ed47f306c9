// The front doors with one number and one Tensor for bounds, which torch has no operator for. The
// value and its dtype are those of torch.clamp_max(torch.clamp_min(self, min), max).

#include "Kernels.h"
#include "base/bounds.h"
#include "base/path.h"
#include "kernels/rules/conventions.h"
#include "ops/recorded.h"

#include <ATen/ops/clamp_max.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/scalar_tensor.h>

namespace clampgrad::native {

namespace {

using at::Scalar;
using at::Tensor;

// torch words the error.
bool is_complex(const Tensor&) {
  return false;
}
bool is_complex(const Scalar& number) {
  return number.isComplex();
}

// The bound beside `self`, whose dtype is that of clamp_min(self, min): there a number is rounded.
Tensor beside(const Tensor& self, const Scalar& number) {
  const auto rounded = number.isSymbolic() ? number : *in_dtype(number, self);
  return at::scalar_tensor(rounded, self.options());
}
Tensor beside(const Tensor& self, const Tensor& bound) {
  return on_device_of(self, bound);
}

// What clamp_min(self, min) makes of the bound. What a number beyond the range of integers means to
// it depends on the release of torch; as nothing of it is differentiated, the result can stand for
// it.
Tensor from_below(const Tensor& self, const Scalar& min) {
  return self.is_floating_point() ? beside(self, min) : at::clamp_min(self, min);
}
Tensor from_below(const Tensor& self, const Tensor& min) {
  return beside(self, min);
}

Tensor on_device_of_bound(const Tensor& self, const Tensor& bound) {
  return on_device_of(bound, self);
}
Tensor on_device_of_bound(const Tensor& self, const Scalar&) {
  return self;
}

template <typename Min, typename Max>
Tensor mixed(
    const Tensor& self,
    const Min& min,
    const Max& max,
    std::string_view gradient,
    bool maximize,
    bool self_will_change = false) {
  const auto c = parse_convention(gradient, maximize);
  if (!any_may_need_gradient(self, min, max) || is_complex(min) || is_complex(max)) {
    return at::clamp_max(at::clamp_min(self, min), max);
  }
  if (!mixed_at_once(c.gradient)) {
    const auto raised = clamp_min(self_will_change ? self.clone() : self, min, gradient, maximize);
    return clamp_max(raised, max, gradient, maximize);
  }
  const auto here = on_device_of_bound(on_device_of_bound(self, min), max);
  const auto x = here.to(at::result_type(here, min));
  return recorded_clamp(x, from_below(x, min), beside(x, max), c, self_will_change);
}

} // namespace

// In place, nothing is written before everything is known to be right.
#define CLAMPGRAD_MIXED(Min, Max, bound)                                                          \
  Tensor clamp(                                                                                   \
      const Tensor& self, const Min& min, const Max& max, std::string_view name, bool maximize) { \
    return mixed(self, min, max, name, maximize);                                                 \
  }                                                                                               \
  Tensor& clamp_(                                                                                 \
      Tensor& self, const Min& min, const Max& max, std::string_view name, bool maximize) {       \
    check_no_overlap(self, bound);                                                                \
    return assign(self, mixed(self, min, max, name, maximize, /*self_will_change=*/true));        \
  }                                                                                               \
  Tensor& clamp_out(                                                                              \
      const Tensor& self,                                                                         \
      const Min& min,                                                                             \
      const Max& max,                                                                             \
      std::string_view name,                                                                      \
      bool maximize,                                                                              \
      Tensor& out) {                                                                              \
    parse_convention(name, maximize);                                                             \
    return at::clamp_max_out(out, at::clamp_min(self, min), max);                                 \
  }

CLAMPGRAD_MIXED(Tensor, Scalar, min)
CLAMPGRAD_MIXED(Scalar, Tensor, max)
#undef CLAMPGRAD_MIXED

} // namespace clampgrad::native
