#pragma once
// clamp between a number and a Tensor, which ATen has no operator for. The value and its dtype are
// those of torch.clamp_max(torch.clamp_min(self, min), max).

#include "Kernels.h"
#include "base/bounds.h"
#include "ops/recorded.h"

#include <ATen/ops/clamp_max.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/scalar_tensor.h>

#include <tuple>

namespace clampgrad::mixed {

using at::Scalar;
using at::Tensor;

// torch words the error.
inline bool is_complex(const Tensor&) {
  return false;
}
inline bool is_complex(const Scalar& number) {
  return number.isComplex();
}

// The bound beside `self`, whose dtype is that of clamp_min(self, min): there a number is rounded.
inline Tensor beside(const Tensor& self, const Scalar& number) {
  const auto rounded = number.isSymbolic() ? number : *in_dtype(number, self);
  const auto bound = at::scalar_tensor(rounded, self.options());
  return overflows(number, self) ? at::clamp_min(bound, number) : bound; // which raises, or not
}
inline Tensor beside(const Tensor& self, const Tensor& bound) {
  return on_device_of(self, bound);
}

// What clamp_min(self, min) makes of the bound. What a number beyond the range of integers means to
// it depends on the release of torch; as nothing of it is differentiated, the result can stand for
// it.
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

template <typename Min, typename Max>
Tensor clamp(const Tensor& self, const Min& min, const Max& max, Convention c) {
  if (!is_recorded(self, min, max)) {
    return at::clamp_max(at::clamp_min(self, min), max);
  }
  if (!mixed_at_once(c.gradient)) {
    const auto name = name_of(c.gradient);
    return native::clamp_max(native::clamp_min(self, min, name, c.maximize), max, name, c.maximize);
  }
  const auto here = on_device_of(max, on_device_of(min, self));
  const auto x = here.to(at::result_type(here, min));
  return recorded_clamp(x, from_below(x, min), beside(x, max), c);
}

// A bound for the second of two operators, of which the first may change what it shares memory
// with.
inline Tensor kept(const Tensor& bound) {
  return bound.clone();
}
inline const Scalar& kept(const Scalar& number) {
  return number;
}

template <typename Min, typename Max>
Tensor& clamp_(Tensor& self, const Min& min, const Max& max, Convention c) {
  const bool recorded = is_recorded(self, min, max);
  check_no_overlap(self, tensor_of(min, max));
  if (recorded && mixed_at_once(c.gradient)) {
    const auto x = self.detach().to(at::result_type(self, min));
    return recorded_clamp_(self, from_below(x, min), beside(x, max), c);
  }
  // Nothing is written before everything is known to be right.
  Tensor result;
  {
    const c10::AutoGradMode mode(c10::GradMode::is_enabled() && !recorded);
    result = at::clamp_max(at::clamp_min(self, min), max);
  }
  if (!recorded) {
    return assign(self, result);
  }
  check_fits(self, result);
  const auto name = name_of(c.gradient);
  const auto upper = kept(max);
  native::clamp_min_(self, min, name, c.maximize);
  return native::clamp_max_(self, upper, name, c.maximize);
}

template <typename Min, typename Max>
Tensor& clamp_out(Tensor& out, const Tensor& self, const Min& min, const Max& max) {
  return at::clamp_max_out(out, at::clamp_min(self, min), max);
}

} // namespace clampgrad::mixed
