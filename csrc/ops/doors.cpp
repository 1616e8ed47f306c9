// The front doors with two bounds of a kind, one bound, or two Tensors: check the names, choose the
// path. How a gradient is recorded is in numbers.cpp and tensors.cpp.
//
// The operators without keywords, *_mingrad, are front doors too where they write to an argument.
// The functional ones have nodes, so that their kernels are what is below autograd: ATen's own
// operators.

#include "Kernels.h"
#include "ops/recorded.h"

#include <ATen/ops/clamp.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/fmax.h>
#include <ATen/ops/fmin.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>

namespace clampgrad::native {

using at::Scalar;
using at::Tensor;
using std::string_view;

namespace {

// An undefined Tensor is no bound.
const Number& given(const Number& bound) {
  return bound;
}
OptionalTensor given(const OptionalTensor& bound) {
  return bound && bound->defined() ? bound : std::nullopt;
}

} // namespace

#define CLAMPGRAD_TWO_BOUNDS(Bound)                                                                \
  Tensor clamp(                                                                                    \
      const Tensor& self,                                                                          \
      const Bound& min,                                                                            \
      const Bound& max,                                                                            \
      string_view gradient,                                                                        \
      bool maximize) {                                                                             \
    const auto c = parse_convention(gradient, maximize);                                           \
    return is_recorded(self, min, max) ? recorded_clamp(self, min, max, c)                         \
                                       : at::clamp(self, given(min), given(max));                  \
  }                                                                                                \
  Tensor& clamp_(                                                                                  \
      Tensor& self, const Bound& min, const Bound& max, string_view gradient, bool maximize) {     \
    const auto c = parse_convention(gradient, maximize);                                           \
    return is_recorded(self, min, max) ? recorded_clamp_(self, min, max, c)                        \
                                       : at::clamp_(self, given(min), given(max));                 \
  }                                                                                                \
  Tensor& clamp_out(                                                                               \
      const Tensor& self,                                                                          \
      const Bound& min,                                                                            \
      const Bound& max,                                                                            \
      string_view gradient,                                                                        \
      bool maximize,                                                                               \
      Tensor& out) {                                                                               \
    parse_convention(gradient, maximize);                                                          \
    return at::clamp_out(out, self, given(min), given(max));                                       \
  }                                                                                                \
  Tensor clamp_mingrad(const Tensor& self, const Bound& min, const Bound& max) {                   \
    return at::clamp(self, given(min), given(max));                                                \
  }                                                                                                \
  Tensor& clamp_mingrad_(Tensor& self, const Bound& min, const Bound& max) {                       \
    return clamp_(self, min, max, "min_norm", false);                                              \
  }                                                                                                \
  Tensor& clamp_mingrad_out(const Tensor& self, const Bound& min, const Bound& max, Tensor& out) { \
    return at::clamp_out(out, self, given(min), given(max));                                       \
  }

CLAMPGRAD_TWO_BOUNDS(Number)
CLAMPGRAD_TWO_BOUNDS(OptionalTensor)
#undef CLAMPGRAD_TWO_BOUNDS

#define CLAMPGRAD_ONE_BOUND(op, Bound)                                                            \
  Tensor op(const Tensor& self, const Bound& bound, string_view gradient, bool maximize) {        \
    const auto c = parse_convention(gradient, maximize);                                          \
    return is_recorded(self, bound) ? recorded_##op(self, bound, c) : at::op(self, bound);        \
  }                                                                                               \
  Tensor& op##_(Tensor& self, const Bound& bound, string_view gradient, bool maximize) {          \
    const auto c = parse_convention(gradient, maximize);                                          \
    return is_recorded(self, bound) ? recorded_##op##_(self, bound, c) : at::op##_(self, bound);  \
  }                                                                                               \
  Tensor& op##_out(                                                                               \
      const Tensor& self, const Bound& bound, string_view gradient, bool maximize, Tensor& out) { \
    parse_convention(gradient, maximize);                                                         \
    return at::op##_out(out, self, bound);                                                        \
  }                                                                                               \
  Tensor op##_mingrad(const Tensor& self, const Bound& bound) {                                   \
    return at::op(self, bound);                                                                   \
  }                                                                                               \
  Tensor& op##_mingrad_(Tensor& self, const Bound& bound) {                                       \
    return op##_(self, bound, "min_norm", false);                                                 \
  }                                                                                               \
  Tensor& op##_mingrad_out(const Tensor& self, const Bound& bound, Tensor& out) {                 \
    return at::op##_out(out, self, bound);                                                        \
  }

CLAMPGRAD_ONE_BOUND(clamp_min, Scalar)
CLAMPGRAD_ONE_BOUND(clamp_min, Tensor)
CLAMPGRAD_ONE_BOUND(clamp_max, Scalar)
CLAMPGRAD_ONE_BOUND(clamp_max, Tensor)
#undef CLAMPGRAD_ONE_BOUND

#define CLAMPGRAD_EXTREMUM(op)                                                                     \
  Tensor op(const Tensor& self, const Tensor& other, string_view gradient, bool maximize) {        \
    const auto g = parse_exact(gradient, maximize, #op);                                           \
    return any_may_need_gradient(self, other) ? recorded_extremum(self, other, Extremum::op, g)    \
                                              : at::op(self, other);                               \
  }                                                                                                \
  Tensor& op##_out(                                                                                \
      const Tensor& self, const Tensor& other, string_view gradient, bool maximize, Tensor& out) { \
    parse_exact(gradient, maximize, #op);                                                          \
    return at::op##_out(out, self, other);                                                         \
  }

CLAMPGRAD_EXTREMUM(maximum)
CLAMPGRAD_EXTREMUM(minimum)
CLAMPGRAD_EXTREMUM(fmax)
CLAMPGRAD_EXTREMUM(fmin)
#undef CLAMPGRAD_EXTREMUM

#define CLAMPGRAD_LEAST_NORM(op)                                                   \
  Tensor op##_mingrad(const Tensor& self, const Tensor& other) {                   \
    return at::op(self, other);                                                    \
  }                                                                                \
  Tensor& op##_mingrad_out(const Tensor& self, const Tensor& other, Tensor& out) { \
    return at::op##_out(out, self, other);                                         \
  }

CLAMPGRAD_LEAST_NORM(maximum)
CLAMPGRAD_LEAST_NORM(minimum)
#undef CLAMPGRAD_LEAST_NORM

} // namespace clampgrad::native
