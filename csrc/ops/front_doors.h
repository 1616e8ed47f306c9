#pragma once
// What a front door does where a gradient is to be recorded: with numbers for bounds (numbers.cpp)
// and with Tensors (tensors.cpp).

#include "base/bounds.h"
#include "base/path.h"
#include "kernels/rules/conventions.h"

#include <ATen/core/Tensor.h>

namespace clampgrad {

// An undefined Tensor is no bound.
inline bool is_given(const OptionalTensor& t) {
  return t && t->defined();
}

// With at least one bound.
#define CLAMPGRAD_DECLARE_TWO_BOUNDS(Bound)                                      \
  bool is_recorded(const at::Tensor& self, const Bound& min, const Bound& max);  \
  at::Tensor recorded_clamp(                                                     \
      const at::Tensor& self, const Bound& min, const Bound& max, Convention c); \
  at::Tensor& recorded_clamp_(at::Tensor& self, const Bound& min, const Bound& max, Convention c);
CLAMPGRAD_DECLARE_TWO_BOUNDS(Number)
CLAMPGRAD_DECLARE_TWO_BOUNDS(OptionalTensor)
#undef CLAMPGRAD_DECLARE_TWO_BOUNDS

bool is_recorded(const at::Tensor& self, const at::Scalar& bound);
bool is_recorded(const at::Tensor& self, const at::Tensor& bound);

at::Tensor recorded_extremum(
    const at::Tensor& self, const at::Tensor& other, Extremum op, Gradient gradient);
at::Tensor& recorded_extremum_(
    at::Tensor& self, const at::Tensor& other, Extremum op, Gradient gradient);

// Raises, as torch's in-place operators do, where writing to self would change `other`. Nothing is
// looked at but tensors that have memory.
void check_no_overlap(const at::Tensor& self, const at::Tensor& other);

// Raises, as torch's in-place operators do, where self cannot hold the result.
void check_fits(const at::Tensor& self, const at::Tensor& result);

// How an operator in place ends where nothing is recorded, or a transform runs.
at::Tensor& assign(at::Tensor& self, const at::Tensor& result);

// Note [In place, by hand]: gives self the value of `result` and the one node that has recorded it
// from self.
at::Tensor& hand_over(at::Tensor& self, const at::Tensor& result);

// ---- One bound ----------------------------------------------------------------------------------

// `t` where torch takes it beside `other`: in operators of two arguments a CPU scalar may be beside
// a Tensor of another device, but not in clamp.
at::Tensor on_device_of(const at::Tensor& other, const at::Tensor& t);
inline const at::Tensor& on_device_of(const at::Scalar&, const at::Tensor& t) {
  return t;
}
inline const at::Scalar& on_device_of(const at::Tensor&, const at::Scalar& number) {
  return number;
}

// What clamp has to be told besides for the result of clamp_min or clamp_max.
Number other_bound(const at::Scalar& bound);
inline OptionalTensor other_bound(const at::Tensor&) {
  return std::nullopt;
}

template <typename Bound>
at::Tensor recorded_clamp_min(const at::Tensor& self, const Bound& min, Convention c) {
  const auto& x = on_device_of(min, self);
  return recorded_clamp(x, on_device_of(x, min), other_bound(min), c);
}
template <typename Bound>
at::Tensor recorded_clamp_max(const at::Tensor& self, const Bound& max, Convention c) {
  const auto& x = on_device_of(max, self);
  return recorded_clamp(x, other_bound(max), on_device_of(x, max), c);
}
template <typename Bound>
at::Tensor& recorded_clamp_min_(at::Tensor& self, const Bound& min, Convention c) {
  return recorded_clamp_(self, on_device_of(self, min), other_bound(min), c);
}
template <typename Bound>
at::Tensor& recorded_clamp_max_(at::Tensor& self, const Bound& max, Convention c) {
  return recorded_clamp_(self, other_bound(max), on_device_of(self, max), c);
}

} // namespace clampgrad
