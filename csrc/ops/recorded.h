#pragma once
// What a front door does where a gradient is to be recorded: with numbers for bounds (numbers.cpp)
// and with Tensors (tensors.cpp).

#include "base/number.h"
#include "base/path.h"
#include "kernels/rules/conventions.h"

#include <ATen/core/Tensor.h>

#include <optional>

namespace clampgrad {

using OptionalTensor = std::optional<at::Tensor>;

// An undefined Tensor is no bound.
inline bool is_given(const OptionalTensor& t) {
  return t && t->defined();
}

// With at least one bound. `self_will_change`: the caller writes the result into self, so that
// nothing may be saved that is self.
#define CLAMPGRAD_DECLARE_TWO_BOUNDS(Bound)                                     \
  bool is_recorded(const at::Tensor& self, const Bound& min, const Bound& max); \
  at::Tensor recorded_clamp(                                                    \
      const at::Tensor& self,                                                   \
      const Bound& min,                                                         \
      const Bound& max,                                                         \
      Convention c,                                                             \
      bool self_will_change = false);                                           \
  at::Tensor& recorded_clamp_(at::Tensor& self, const Bound& min, const Bound& max, Convention c);
CLAMPGRAD_DECLARE_TWO_BOUNDS(Number)
CLAMPGRAD_DECLARE_TWO_BOUNDS(OptionalTensor)
#undef CLAMPGRAD_DECLARE_TWO_BOUNDS

#define CLAMPGRAD_DECLARE_ONE_BOUND(Bound)                                               \
  bool is_recorded(const at::Tensor& self, const Bound& bound);                          \
  at::Tensor recorded_clamp_min(const at::Tensor& self, const Bound& min, Convention c); \
  at::Tensor recorded_clamp_max(const at::Tensor& self, const Bound& max, Convention c); \
  at::Tensor& recorded_clamp_min_(at::Tensor& self, const Bound& min, Convention c);     \
  at::Tensor& recorded_clamp_max_(at::Tensor& self, const Bound& max, Convention c);
CLAMPGRAD_DECLARE_ONE_BOUND(at::Scalar)
CLAMPGRAD_DECLARE_ONE_BOUND(at::Tensor)
#undef CLAMPGRAD_DECLARE_ONE_BOUND

at::Tensor recorded_extremum(
    const at::Tensor& self, const at::Tensor& other, Extremum op, Gradient gradient);

// Raises, as torch's in-place operators do, where writing to self would change `other`. Nothing is
// looked at but tensors that have memory.
void check_no_overlap(const at::Tensor& self, const at::Tensor& other);

// Of clamp_min and clamp_max: torch takes a CPU scalar beside a Tensor of another device there, as
// every operator of two arguments does, but not in clamp.
at::Tensor on_device_of(const at::Tensor& other, const at::Tensor& t);

// The end of an in-place operator: writes the result into self, or raises where torch would.
at::Tensor& assign(at::Tensor& self, const at::Tensor& result);

} // namespace clampgrad
