#pragma once
// What ATen's operators return. Where a kernel of ours is faster and nobody would notice, that
// computes it: the front doors come here where no gradient is recorded.

#include "base/bounds.h"
#include "base/convention.h"
#include "base/path.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/clamp_min.h>

namespace clampgrad::values {

// ---- Whether a kernel of ours computes it ------------------------------------------------------

// Not where a profiler wants to see ATen's operator, nor where subnormal numbers are flushed: ATen
// flushes them in some elements of a row and not in others.
bool is_unobserved();

// Plain, on the CPU, and of a dtype that has kernels: between numbers all, between Tensors those of
// 16 bits. For others ATen's are as fast.
bool is_computable(const at::Tensor& self);
bool is_computable(const at::Tensor& self, const at::Scalar& bound);
bool is_computable(const at::Tensor& self, const at::Tensor& bound);
template <typename T>
bool is_computable(const at::Tensor& self, const std::optional<T>& bound) {
  return !bound || is_computable(self, *bound);
}

template <typename... Bounds>
bool are_computable(const at::Tensor& self, const Bounds&... bounds) {
  return is_computable(self) && (is_given(bounds) || ...) && (is_computable(self, bounds) && ...) &&
      is_unobserved();
}

// Whether `out` may be written, as far as this does not depend on the arguments.
bool is_writable(const at::Tensor& out, at::ScalarType dtype);

// The same where `out` is written, which must have the shape of the result: ATen resizes others.
// What is differentiated is ATen's to refuse.
template <typename... Bounds>
bool are_computable_in(const at::Tensor& out, const at::Tensor& self, const Bounds&... bounds) {
  const auto fits = [&](const at::Tensor& t) {
    return at::is_expandable_to(t.sizes(), out.sizes());
  };
  const auto fills = [&](const at::Tensor& t) { return t.sizes() == out.sizes(); };
  const auto is_constant = [](const at::Tensor& t) { return !is_differentiated(t); };
  return is_writable(out, self.scalar_type()) && are_computable(self, bounds...) &&
      all_tensors(fits, self, bounds...) && all_tensors(is_constant, self, bounds...) &&
      (any_tensor(fills, self) || (any_tensor(fills, bounds) || ...));
}

// ---- By our kernel -----------------------------------------------------------------------------
// The result is written to `out`, if that is defined. They may be called where the above holds.

at::Tensor compute(
    const at::Tensor& out,
    const at::Tensor& self,
    const OptionalScalar& min,
    const OptionalScalar& max);
at::Tensor compute(
    const at::Tensor& out,
    const at::Tensor& self,
    const OptionalTensor& min,
    const OptionalTensor& max);
at::Tensor compute(
    const at::Tensor& out, PairOperator op, const at::Tensor& self, const at::Tensor& other);

// ---- By our kernel or ATen's -------------------------------------------------------------------

template <typename Bound>
at::Tensor clamp(const at::Tensor& self, const Bound& min, const Bound& max) {
  return are_computable(self, min, max) ? compute({}, self, min, max) : at::clamp(self, min, max);
}
template <typename Bound>
at::Tensor& clamp_(at::Tensor& self, const Bound& min, const Bound& max) {
  if (!are_computable_in(self, self, min, max)) {
    return at::clamp_(self, min, max);
  }
  compute(self, self, min, max);
  return self;
}
template <typename Bound>
at::Tensor& clamp_out(at::Tensor& out, const at::Tensor& self, const Bound& min, const Bound& max) {
  if (!are_computable_in(out, self, min, max)) {
    return at::clamp_out(out, self, min, max);
  }
  compute(out, self, min, max);
  return out;
}

// Of one bound, which is a Scalar or a Tensor.
#define CLAMPGRAD_ONE_BOUND(name, min, max)                                             \
  template <typename Bound>                                                             \
  at::Tensor name(const at::Tensor& self, const Bound& bound) {                         \
    using Bounds = std::optional<Bound>;                                                \
    return are_computable(self, bound) ? compute({}, self, Bounds(min), Bounds(max))    \
                                       : at::name(self, bound);                         \
  }                                                                                     \
  template <typename Bound>                                                             \
  at::Tensor& name##_(at::Tensor& self, const Bound& bound) {                           \
    using Bounds = std::optional<Bound>;                                                \
    if (!are_computable_in(self, self, bound)) {                                        \
      return at::name##_(self, bound);                                                  \
    }                                                                                   \
    compute(self, self, Bounds(min), Bounds(max));                                      \
    return self;                                                                        \
  }                                                                                     \
  template <typename Bound>                                                             \
  at::Tensor& name##_out(at::Tensor& out, const at::Tensor& self, const Bound& bound) { \
    using Bounds = std::optional<Bound>;                                                \
    if (!are_computable_in(out, self, bound)) {                                         \
      return at::name##_out(out, self, bound);                                          \
    }                                                                                   \
    compute(out, self, Bounds(min), Bounds(max));                                       \
    return out;                                                                         \
  }
CLAMPGRAD_ONE_BOUND(clamp_min, bound, std::nullopt)
CLAMPGRAD_ONE_BOUND(clamp_max, std::nullopt, bound)
#undef CLAMPGRAD_ONE_BOUND

at::Tensor extremum(PairOperator op, const at::Tensor& self, const at::Tensor& other);
at::Tensor& extremum_out(
    PairOperator op, at::Tensor& out, const at::Tensor& self, const at::Tensor& other);

} // namespace clampgrad::values
