#pragma once
// clamp between a number and a Tensor, which ATen lacks. The value and its dtype are those of
// torch.clamp_max(torch.clamp_min(self, min), max).

#include "kernels/rules/conventions.h"
#include "ops/front_doors.h"
#include "ops/record.h"

#include <ATen/ops/result_type.h>
#include <ATen/ops/scalar_tensor.h>

#include <tuple>

namespace clampgrad {

namespace mixed {

using at::Scalar;
using at::Tensor;

// torch raises for a complex bound.
inline bool is_complex(const Tensor&) {
  return false;
}
inline bool is_complex(const Scalar& number) {
  return number.isComplex();
}

// The bound beside `self`, whose dtype is that of clamp_min(self, min): there a number is rounded.
inline Tensor beside(const Tensor& self, const Scalar& number) {
  const auto bound = at::scalar_tensor(*in_dtype(number, self), self.options());
  return overflows(number, self) ? at::clamp_min(bound, number) : bound; // which raises, or not
}
inline Tensor beside(const Tensor& self, const Tensor& bound) {
  return on_device_of(self, bound);
}

// The lower bound, as clamp_min(self, min) sees it. For integers, which are not differentiated, the
// result of clamp_min is the bound: releases of torch differ on a number out of range.
inline Tensor from_below(const Tensor& self, const Scalar& min) {
  return self.is_floating_point() ? beside(self, min) : at::clamp_min(self, min);
}
inline Tensor from_below(const Tensor& self, const Tensor& min) {
  return beside(self, min);
}

// The bound that is a Tensor.
template <typename Min, typename Max>
const Tensor& tensor_of(const Min& min, const Max& max) {
  return std::get<const Tensor&>(std::tie(min, max));
}

template <typename Min, typename Max>
bool is_recorded(const Tensor& self, const Min& min, const Max& max) {
  TORCH_CHECK_VALUE(tensor_of(min, max).defined(), "clamp_min and clamp_max need a bound");
  return any_may_need_gradient(self, min, max) && !is_complex(min) && !is_complex(max);
}

} // namespace mixed

namespace front_door {

template <typename Min, typename Max>
at::Tensor clamp(const at::Tensor& self, const Min& min, const Max& max, Convention c) {
  if (!mixed::is_recorded(self, min, max)) {
    return at::clamp_max(at::clamp_min(self, min), max);
  }
  if (!mixed_at_once(c.gradient)) {
    return clamp_max(clamp_min(self, min, c), max, c);
  }
  const auto here = on_device_of(max, on_device_of(min, self));
  const auto x = here.to(at::result_type(here, min));
  const OptionalTensor lo = mixed::from_below(x, min), hi = mixed::beside(x, max);
  return record_clamp(x, lo, hi, c);
}

template <typename Min, typename Max>
at::Tensor& clamp_(at::Tensor& self, const Min& min, const Max& max, Convention c) {
  const bool recorded = mixed::is_recorded(self, min, max);
  check_no_overlap(self, mixed::tensor_of(min, max));
  if (recorded && mixed_at_once(c.gradient)) {
    const auto x = self.detach().to(at::result_type(self, min));
    const OptionalTensor lo = mixed::from_below(x, min), hi = mixed::beside(x, max);
    return record_clamp_(self, lo, hi, c);
  }
  if (!recorded) {
    const auto result = at::clamp_max(at::clamp_min(self, min), max);
    check_fits(self, result);
    return self.copy_(result);
  }
  // If torch refuses the second clamp, it raises before the first has written anything.
  below_autograd([&] { check_fits(self, at::clamp_max(self, max)); });
  TORCH_CHECK(
      at::result_type(self, min) == self.scalar_type(),
      "clampgrad: clamp_ would round what min makes of its input to ",
      self.scalar_type(),
      " before max is compared, and so see other ties than clamp does. Call clamp, or convert min");
  auto hi = max;
  if constexpr (std::is_same_v<Max, at::Tensor>) {
    hi = max.clone(); // which may be self
  }
  clamp_min_(self, min, c);
  return clamp_max_(self, hi, c);
}

template <typename Min, typename Max>
at::Tensor& clamp_out(at::Tensor& out, const at::Tensor& self, const Min& min, const Max& max) {
  return at::clamp_max_out(out, at::clamp_min(self, min), max);
}

} // namespace front_door
} // namespace clampgrad
