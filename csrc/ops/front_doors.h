#pragma once
// The front doors: calls from Python, C++, the dispatcher (the generated FrontDoors.cpp) and a pin
// enter here first. If no gradient is to be recorded, values.h returns what ATen's operator does.

#include "base/bounds.h"
#include "base/convention.h"
#include "base/path.h"
#include "ops/values.h"

namespace clampgrad {

// Whether a gradient is to be recorded. False also where torch raises, so that it words the error.
template <typename... Bounds>
bool is_recorded(const at::Tensor& self, const Bounds&... bounds) {
  return any_may_need_gradient(self, bounds...) && (is_given(bounds) || ...) &&
      !(is_complex(bounds) || ...);
}

// What the composed path saves: a copy of a plain tensor, because that may change after the call.
// If not differentiated, the copy repeats what the tensor repeats: that decides a result's layout.
at::Tensor kept(const at::Tensor& t);
OptionalTensor kept(const OptionalTensor& bound);

// By the operator of ATen.
at::Tensor aten_extremum(Extremum op, const at::Tensor& self, const at::Tensor& other);

// Raises, as torch's in-place operators do, where writing to self would change memory of `other`.
void check_no_overlap(const at::Tensor& self, const at::Tensor& other);

// Raises, as torch's in-place operators do, where self cannot hold the result.
void check_fits(const at::Tensor& self, const at::Tensor& result);

// Whether self is an input of a graph that is being recorded, and the graph writes it; and the copy
// of such an input that backward may keep: Note [An input that a graph writes].
bool is_written_input(const at::Tensor& self);
at::Tensor copied(const at::Tensor& self);

// Gives self the value of `result` and the node that has recorded it from self: Note [In place].
at::Tensor& hand_over(at::Tensor& self, const at::Tensor& result);

// The other bound with which clamp gives the result of clamp_min or clamp_max.
Number other_bound(const at::Scalar& bound);
inline OptionalTensor other_bound(const at::Tensor&) {
  return std::nullopt;
}

namespace front_door {

// With bounds of one kind; those between a number and a Tensor are in ops/mixed.h.
at::Tensor clamp(const at::Tensor& self, const Number& min, const Number& max, Convention c);
at::Tensor& clamp_(at::Tensor& self, const Number& min, const Number& max, Convention c);
at::Tensor clamp(
    const at::Tensor& self, const OptionalTensor& min, const OptionalTensor& max, Convention c);
at::Tensor& clamp_(
    at::Tensor& self, const OptionalTensor& min, const OptionalTensor& max, Convention c);

// maximum and its kind, which take exact gradients.
at::Tensor extremum(
    Extremum op, const at::Tensor& self, const at::Tensor& other, Gradient gradient);

// The bound is a Scalar or a Tensor.
template <typename Bound>
at::Tensor clamp_min(const at::Tensor& self, const Bound& min, Convention c) {
  return is_recorded(self, min) ? clamp(self, min, other_bound(min), c)
                                : values::clamp_min(self, min);
}
template <typename Bound>
at::Tensor clamp_max(const at::Tensor& self, const Bound& max, Convention c) {
  return is_recorded(self, max) ? clamp(self, other_bound(max), max, c)
                                : values::clamp_max(self, max);
}
template <typename Bound>
at::Tensor& clamp_min_(at::Tensor& self, const Bound& min, Convention c) {
  return is_recorded(self, min) ? clamp_(self, min, other_bound(min), c)
                                : values::clamp_min_(self, min);
}
template <typename Bound>
at::Tensor& clamp_max_(at::Tensor& self, const Bound& max, Convention c) {
  return is_recorded(self, max) ? clamp_(self, other_bound(max), max, c)
                                : values::clamp_max_(self, max);
}

// With out=, nothing is recorded: these are those of values.h.
using values::clamp_max_out;
using values::clamp_min_out;
using values::clamp_out;
using values::extremum_out;

} // namespace front_door
} // namespace clampgrad
