#pragma once
// clamp between a number and a Tensor, which ATen lacks. The value and its dtype are those of
// torch.clamp_max(torch.clamp_min(self, min), max).

#include "base/messages.h"
#include "kernels/rules/conventions.h"
#include "ops/front_doors.h"
#include "ops/record.h"

#include <ATen/ops/result_type.h>
#include <ATen/ops/scalar_tensor.h>

#include <tuple>

namespace clampgrad {

// The bound beside `self`, whose dtype is that of clamp_min(self, min): there a number is rounded.
inline at::Tensor to_tensor_bound(const at::Tensor& self, const at::Scalar& number) {
  const auto bound = at::scalar_tensor(*round_to_dtype(number, self), self.options());
  return overflows(number, self) ? at::clamp_min(bound, number) : bound; // which raises, or not
}
inline at::Tensor to_tensor_bound(const at::Tensor& self, const at::Tensor& bound) {
  return bound;
}

// The lower bound, as clamp_min(self, min) sees it. For integers, which are not differentiated, the
// result of clamp_min is the bound: releases of torch differ on a number out of range.
template <typename Min>
at::Tensor to_lower_tensor_bound(const at::Tensor& self, const Min& min) {
  const bool is_number = std::is_same_v<Min, at::Scalar>;
  return is_number && !self.is_floating_point() ? at::clamp_min(self, min)
                                                : to_tensor_bound(self, min);
}

namespace front_door {

template <typename Min, typename Max>
at::Tensor clamp(const at::Tensor& self, const Min& min, const Max& max, Convention c) {
  if (!should_record(self, min, max)) {
    return values::clamp_max(values::clamp_min(self, min), max);
  }
  if (!is_one_step_clamp(c.gradient)) {
    return clamp_max(clamp_min(self, min, c), max, c);
  }
  const auto x = self.to(at::result_type(self, min));
  const OptionalTensor lo = to_lower_tensor_bound(x, min), hi = to_tensor_bound(x, max);
  return clamp(x, lo, hi, c);
}

template <typename Min, typename Max>
at::Tensor& clamp_(at::Tensor& self, const Min& min, const Max& max, Convention c) {
  const bool needs_record = should_record(self, min, max);
  check_no_overlap(self, std::get<const at::Tensor&>(std::tie(min, max)));
  if (needs_record && is_one_step_clamp(c.gradient)) {
    const auto x = self.detach().to(at::result_type(self, min));
    const OptionalTensor lo = to_lower_tensor_bound(x, min), hi = to_tensor_bound(x, max);
    return clamp_(self, lo, hi, c);
  }
  if (!needs_record) {
    const auto result = values::clamp_max(values::clamp_min(self, min), max);
    check_can_hold_result(self, result);
    return self.copy_(result.to(self.scalar_type())); // see adopt_result
  }
  // If torch refuses the second clamp, it raises before the first has written anything.
  call_below_autograd([&] { check_can_hold_result(self, at::clamp_max(self, max)); });
  TORCH_CHECK(
      at::result_type(self, min) == self.scalar_type(),
      messages::format(
          messages::kRoundsBetweenSteps,
          c10::str("torch.", c10::getDtypeNames(self.scalar_type()).first)));
  auto hi = max;
  if constexpr (std::is_same_v<Max, at::Tensor>) {
    hi = max.clone(); // which may be self
  }
  clamp_min_(self, min, c);
  return clamp_max_(self, hi, c);
}

template <typename Min, typename Max>
at::Tensor& clamp_out(at::Tensor& out, const at::Tensor& self, const Min& min, const Max& max) {
  // A kernel of ours returns a constant, of which ATen could not refuse to write the result.
  const bool constant = !is_differentiated(self) && !any_tensor(is_differentiated, min);
  const auto raised = constant ? values::clamp_min(self, min) : at::clamp_min(self, min);
  return values::clamp_max_out(out, raised, max);
}

} // namespace front_door
} // namespace clampgrad
