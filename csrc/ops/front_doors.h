#pragma once
// The front doors: calls from Python, C++, the dispatcher (the generated FrontDoors.cpp) and a pin
// enter here first. If no gradient is to be recorded, values.h returns what ATen's operator does.

#include "base/bounds.h"
#include "base/convention.h"
#include "base/path.h"
#include "ops/values.h"

namespace clampgrad {

// Whether to record a gradient. Also false for arguments that torch refuses, so that torch's
// operator runs and raises its own error.
template <typename... Bounds>
bool should_record(const at::Tensor& self, const Bounds&... bounds) {
  return any_may_need_gradient(self, bounds...) && (is_given(bounds) || ...) &&
      !(is_complex(bounds) || ...);
}

// Copies a plain tensor for the composed path to save, because the caller may change it after the
// call. A copy that is not differentiated keeps expanded dimensions, which decide the result's
// layout.
at::Tensor copy_for_backward(const at::Tensor& t);
OptionalTensor copy_for_backward(const OptionalTensor& bound);

// Calls ATen's operator. `op` is no clamp.
at::Tensor aten_extremum(PairOperator op, const at::Tensor& self, const at::Tensor& other);

// Raises the error of torch's in-place operators if writing to self would change memory of `other`.
void check_no_overlap(const at::Tensor& self, const at::Tensor& other);

// Raises the error of torch's in-place operators if self cannot hold the result.
void check_can_hold_result(const at::Tensor& self, const at::Tensor& result);

// Whether self is an input that the graph being captured mutates, and a copy of such an input that
// backward can save: Note [An input that a graph writes].
bool is_mutated_graph_input(const at::Tensor& self);
at::Tensor copy_mutated_input(const at::Tensor& self);

// Gives self the value of `result`, and its node, which was recorded from self: Note [In place].
at::Tensor& adopt_result(at::Tensor& self, const at::Tensor& result);

// Returns the other bound with which clamp gives the result of clamp_min or clamp_max.
OptionalScalar implied_bound(const at::Scalar& bound);
inline OptionalTensor implied_bound(const at::Tensor&) {
  return std::nullopt;
}

namespace front_door {

// With bounds of one kind; those between a number and a Tensor are in ops/mixed.h.
at::Tensor clamp(
    const at::Tensor& self, const OptionalScalar& min, const OptionalScalar& max, Convention c);
at::Tensor& clamp_(
    at::Tensor& self, const OptionalScalar& min, const OptionalScalar& max, Convention c);
at::Tensor clamp(
    const at::Tensor& self, const OptionalTensor& min, const OptionalTensor& max, Convention c);
at::Tensor& clamp_(
    at::Tensor& self, const OptionalTensor& min, const OptionalTensor& max, Convention c);

// Extrema, which take exact gradients.
at::Tensor extremum(
    PairOperator op, const at::Tensor& self, const at::Tensor& other, Gradient gradient);

// The bound is a Scalar or a Tensor.
template <typename Bound>
at::Tensor clamp_min(const at::Tensor& self, const Bound& min, Convention c) {
  return should_record(self, min) ? clamp(self, min, implied_bound(min), c)
                                  : values::clamp_min(self, min);
}
template <typename Bound>
at::Tensor clamp_max(const at::Tensor& self, const Bound& max, Convention c) {
  return should_record(self, max) ? clamp(self, implied_bound(max), max, c)
                                  : values::clamp_max(self, max);
}
template <typename Bound>
at::Tensor& clamp_min_(at::Tensor& self, const Bound& min, Convention c) {
  return should_record(self, min) ? clamp_(self, min, implied_bound(min), c)
                                  : values::clamp_min_(self, min);
}
template <typename Bound>
at::Tensor& clamp_max_(at::Tensor& self, const Bound& max, Convention c) {
  return should_record(self, max) ? clamp_(self, implied_bound(max), max, c)
                                  : values::clamp_max_(self, max);
}

// With out=, nothing is recorded: these are those of values.h.
using values::clamp_max_out;
using values::clamp_min_out;
using values::clamp_out;
using values::extremum_out;

} // namespace front_door
} // namespace clampgrad
