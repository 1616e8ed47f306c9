// The front doors with numbers for bounds: check the names, choose the path.

#include "Kernels.h"
#include "Operators.h"
#include "autograd/inplace.h"
#include "base/bounds.h"
#include "base/path.h"
#include "kernels/memory_order.h"
#include "kernels/rules/conventions.h"
#include "ops/recorded.h"

#include <ATen/ops/clamp.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/clamp_min.h>

namespace clampgrad {

namespace native {
namespace {

bool is_complex(const Number& bound) {
  return bound && bound->isComplex();
}

// False also where torch raises, so that it words the error.
bool differentiable(const at::Tensor& self, const Number& min, const Number& max) {
  return may_need_gradient(self) && (min || max) && !is_complex(min) && !is_complex(max);
}

// torch.clamp_min(x, nan) is NaN everywhere. torch.clamp(x, min=nan) is not before 2.13, but with
// NaN for both bounds it is, in every release.
Number other_bound(const at::Scalar& bound) {
  return is_nan(bound) ? Number(bound) : std::nullopt;
}

// A bound of NaN makes the result NaN everywhere; kernels need not know that.
bool fast(const at::Tensor& self, const Number& min, const Number& max) {
  return takes_fast_path(self) && !is_symbolic(min) && !is_symbolic(max) && !is_nan(min) &&
      !is_nan(max);
}

} // namespace
} // namespace native

at::Tensor recorded_clamp(
    const at::Tensor& self,
    const Number& min,
    const Number& max,
    Convention convention,
    bool self_will_change) {
  if (convention.gradient == Gradient::straight_through) {
    return clampgrad::_clamp_straight_through(self, min, max);
  }
  const auto gate = static_cast<int64_t>(gate_of(convention));
  if (native::fast(self, min, max)) {
    const auto order = memory_order(self).value_or(kContiguousOrder);
    return std::get<0>(clampgrad::_clamp_gate(self, min, max, gate, order));
  }
  // A plain tensor may be changed after the call, also where no kernel has taken it.
  return clampgrad::_clamp_pinned(
      self_will_change || is_plain(self) ? self.clone() : self,
      in_dtype(min, self),
      in_dtype(max, self),
      gate);
}

namespace native {

namespace {

at::Tensor& differentiable_clamp_(
    at::Tensor& self, const Number& min, const Number& max, Convention convention) {
  if (convention.gradient != Gradient::straight_through && fast(self, min, max)) {
    const auto order = memory_order(self).value_or(kContiguousOrder);
    return record_clamp_(self, min, max, gate_of(convention), order);
  }
  // copy_ gives the checks of an in-place operator.
  return self.copy_(recorded_clamp(self, min, max, convention, /*self_will_change=*/true));
}

} // namespace

at::Tensor clamp(
    const at::Tensor& self,
    const Number& min,
    const Number& max,
    std::string_view gradient,
    bool maximize) {
  const auto convention = parse_convention(gradient, maximize);
  return differentiable(self, min, max) ? recorded_clamp(self, min, max, convention)
                                        : at::clamp(self, min, max);
}

at::Tensor& clamp_(
    at::Tensor& self,
    const Number& min,
    const Number& max,
    std::string_view gradient,
    bool maximize) {
  const auto convention = parse_convention(gradient, maximize);
  return differentiable(self, min, max) ? differentiable_clamp_(self, min, max, convention)
                                        : at::clamp_(self, min, max);
}

at::Tensor& clamp_out(
    const at::Tensor& self,
    const Number& min,
    const Number& max,
    std::string_view gradient,
    bool maximize,
    at::Tensor& out) {
  parse_convention(gradient, maximize);
  return at::clamp_out(out, self, min, max);
}

at::Tensor clamp_min(
    const at::Tensor& self, const at::Scalar& min, std::string_view gradient, bool maximize) {
  const auto convention = parse_convention(gradient, maximize);
  return differentiable(self, min, std::nullopt)
      ? recorded_clamp(self, min, other_bound(min), convention)
      : at::clamp_min(self, min);
}

at::Tensor& clamp_min_(
    at::Tensor& self, const at::Scalar& min, std::string_view gradient, bool maximize) {
  const auto convention = parse_convention(gradient, maximize);
  return differentiable(self, min, std::nullopt)
      ? differentiable_clamp_(self, min, other_bound(min), convention)
      : at::clamp_min_(self, min);
}

at::Tensor& clamp_min_out(
    const at::Tensor& self,
    const at::Scalar& min,
    std::string_view gradient,
    bool maximize,
    at::Tensor& out) {
  parse_convention(gradient, maximize);
  return at::clamp_min_out(out, self, min);
}

at::Tensor clamp_max(
    const at::Tensor& self, const at::Scalar& max, std::string_view gradient, bool maximize) {
  const auto convention = parse_convention(gradient, maximize);
  return differentiable(self, std::nullopt, max)
      ? recorded_clamp(self, other_bound(max), max, convention)
      : at::clamp_max(self, max);
}

at::Tensor& clamp_max_(
    at::Tensor& self, const at::Scalar& max, std::string_view gradient, bool maximize) {
  const auto convention = parse_convention(gradient, maximize);
  return differentiable(self, std::nullopt, max)
      ? differentiable_clamp_(self, other_bound(max), max, convention)
      : at::clamp_max_(self, max);
}

at::Tensor& clamp_max_out(
    const at::Tensor& self,
    const at::Scalar& max,
    std::string_view gradient,
    bool maximize,
    at::Tensor& out) {
  parse_convention(gradient, maximize);
  return at::clamp_max_out(out, self, max);
}

} // namespace native
} // namespace clampgrad
