// The front doors with Tensors: check the names, leave the rest to operators with a node at every
// level of a transform. What is being differentiated is for that node to see, not for us.

#include "Kernels.h"
#include "Operators.h"
#include "ops/convention.h"
#include "ops/path.h"

#include <ATen/ATen.h>

namespace clampgrad::native {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

namespace {

bool may_need_gradient(const OptionalTensor& t) {
  return t && t->defined() && clampgrad::may_need_gradient(*t);
}

Tensor pinned(
    const Tensor& self, const OptionalTensor& min, const OptionalTensor& max, Convention c) {
  return clampgrad::_clamp_tensors_pinned(
      self, min, max, static_cast<int64_t>(c.gradient), c.maximize);
}

// copy_ gives the checks of an in-place operator but two: it broadcasts, and it casts anything.
Tensor& pinned_(
    Tensor& self, const OptionalTensor& min, const OptionalTensor& max, Convention c) {
  const auto result = pinned(self.clone(), min, max, c);
  if (result.sym_sizes() != self.sym_sizes() ||
      !at::canCast(result.scalar_type(), self.scalar_type())) {
    return at::clamp_(self, min, max); // which raises
  }
  return self.copy_(result);
}

} // namespace

// Kernels of the operators with a node.

Tensor clamp_tensors_pinned(
    const Tensor& self, const OptionalTensor& min, const OptionalTensor& max, int64_t, bool) {
  return at::clamp(self, min, max);
}

Tensor extremum_pinned(const Tensor& self, const Tensor& other, int64_t op, int64_t) {
  switch (static_cast<Extremum>(op)) {
    case Extremum::maximum:
      return at::maximum(self, other);
    case Extremum::minimum:
      return at::minimum(self, other);
    case Extremum::fmax:
      return at::fmax(self, other);
    case Extremum::fmin:
      return at::fmin(self, other);
  }
  TORCH_INTERNAL_ASSERT(false);
}

// Front doors.

Tensor clamp(
    const Tensor& self,
    const OptionalTensor& min,
    const OptionalTensor& max,
    std::string_view gradient,
    bool maximize) {
  const auto c = parse_convention(gradient, maximize);
  const bool differentiable =
      (min || max) && (clampgrad::may_need_gradient(self) || may_need_gradient(min) || may_need_gradient(max));
  return differentiable ? pinned(self, min, max, c) : at::clamp(self, min, max);
}

Tensor& clamp_(
    Tensor& self,
    const OptionalTensor& min,
    const OptionalTensor& max,
    std::string_view gradient,
    bool maximize) {
  const auto c = parse_convention(gradient, maximize);
  const bool differentiable =
      (min || max) && (clampgrad::may_need_gradient(self) || may_need_gradient(min) || may_need_gradient(max));
  return differentiable ? pinned_(self, min, max, c) : at::clamp_(self, min, max);
}

Tensor& clamp_out(
    const Tensor& self,
    const OptionalTensor& min,
    const OptionalTensor& max,
    std::string_view gradient,
    bool maximize,
    Tensor& out) {
  parse_convention(gradient, maximize);
  return at::clamp_out(out, self, min, max);
}

#define CLAMPGRAD_ONE_BOUND(bound, as_min, as_max)                                               \
  Tensor clamp_##bound(                                                                          \
      const Tensor& self, const Tensor& bound, std::string_view gradient, bool maximize) {       \
    const auto c = parse_convention(gradient, maximize);                                         \
    return clampgrad::may_need_gradient(self) || clampgrad::may_need_gradient(bound)             \
        ? pinned(self, as_min, as_max, c)                                                        \
        : at::clamp_##bound(self, bound);                                                        \
  }                                                                                              \
  Tensor& clamp_##bound##_(                                                                      \
      Tensor& self, const Tensor& bound, std::string_view gradient, bool maximize) {             \
    const auto c = parse_convention(gradient, maximize);                                         \
    return clampgrad::may_need_gradient(self) || clampgrad::may_need_gradient(bound)             \
        ? pinned_(self, as_min, as_max, c)                                                       \
        : at::clamp_##bound##_(self, bound);                                                     \
  }                                                                                              \
  Tensor& clamp_##bound##_out(                                                                   \
      const Tensor& self,                                                                        \
      const Tensor& bound,                                                                       \
      std::string_view gradient,                                                                 \
      bool maximize,                                                                             \
      Tensor& out) {                                                                             \
    parse_convention(gradient, maximize);                                                        \
    return at::clamp_##bound##_out(out, self, bound);                                            \
  }                                                                                              \
  Tensor clamp_##bound##_mingrad_tensor(const Tensor& self, const Tensor& bound) {               \
    return at::clamp_##bound(self, bound);                                                       \
  }                                                                                              \
  Tensor& clamp_##bound##_mingrad_(Tensor& self, const Tensor& bound) {                          \
    return clamp_##bound##_(self, bound, "min_norm", false);                                     \
  }                                                                                              \
  Tensor& clamp_##bound##_mingrad_out(const Tensor& self, const Tensor& bound, Tensor& out) {    \
    return at::clamp_##bound##_out(out, self, bound);                                            \
  }

CLAMPGRAD_ONE_BOUND(min, min, std::nullopt)
CLAMPGRAD_ONE_BOUND(max, std::nullopt, max)
#undef CLAMPGRAD_ONE_BOUND

#define CLAMPGRAD_EXTREMUM(op)                                                                   \
  Tensor op(const Tensor& self, const Tensor& other, std::string_view gradient, bool maximize) { \
    const auto exact = parse_exact(gradient, maximize, #op);                                     \
    return clampgrad::may_need_gradient(self) || clampgrad::may_need_gradient(other)             \
        ? clampgrad::_extremum_pinned(                                                           \
              self, other, static_cast<int64_t>(Extremum::op), static_cast<int64_t>(exact))      \
        : at::op(self, other);                                                                   \
  }                                                                                              \
  Tensor& op##_out(                                                                              \
      const Tensor& self,                                                                        \
      const Tensor& other,                                                                       \
      std::string_view gradient,                                                                 \
      bool maximize,                                                                             \
      Tensor& out) {                                                                             \
    parse_exact(gradient, maximize, #op);                                                        \
    return at::op##_out(out, self, other);                                                       \
  }

CLAMPGRAD_EXTREMUM(maximum)
CLAMPGRAD_EXTREMUM(minimum)
CLAMPGRAD_EXTREMUM(fmax)
CLAMPGRAD_EXTREMUM(fmin)
#undef CLAMPGRAD_EXTREMUM

// The operators without keywords.

Tensor clamp_mingrad_tensor(
    const Tensor& self, const OptionalTensor& min, const OptionalTensor& max) {
  return at::clamp(self, min, max);
}

Tensor& clamp_mingrad_(
    Tensor& self, const OptionalTensor& min, const OptionalTensor& max) {
  return clamp_(self, min, max, "min_norm", false);
}

Tensor& clamp_mingrad_out(
    const Tensor& self, const OptionalTensor& min, const OptionalTensor& max, Tensor& out) {
  return at::clamp_out(out, self, min, max);
}

Tensor maximum_mingrad(const Tensor& self, const Tensor& other) {
  return at::maximum(self, other);
}

Tensor& maximum_mingrad_out(const Tensor& self, const Tensor& other, Tensor& out) {
  return at::maximum_out(out, self, other);
}

Tensor minimum_mingrad(const Tensor& self, const Tensor& other) {
  return at::minimum(self, other);
}

Tensor& minimum_mingrad_out(const Tensor& self, const Tensor& other, Tensor& out) {
  return at::minimum_out(out, self, other);
}

} // namespace clampgrad::native
