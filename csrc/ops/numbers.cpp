// How a clamp between numbers is recorded.

#include "Operators.h"
#include "autograd/inplace.h"
#include "base/bounds.h"
#include "kernels/memory_order.h"
#include "ops/recorded.h"

namespace clampgrad {

using at::Scalar;
using at::Tensor;

namespace {

bool is_complex(const Number& bound) {
  return bound && bound->isComplex();
}

// A bound of NaN makes the result NaN everywhere; kernels need not know that.
bool fast(const Tensor& self, const Number& min, const Number& max) {
  return takes_fast_path(self) && !is_symbolic(min) && !is_symbolic(max) && !is_nan(min) &&
      !is_nan(max);
}

} // namespace

// torch.clamp_min(x, nan) is NaN everywhere. torch.clamp(x, min=nan) is not before 2.13, but with
// NaN for both bounds it is, in every release.
Number other_bound(const Scalar& bound) {
  return is_nan(bound) ? Number(bound) : std::nullopt;
}

// False also where torch raises, so that it words the error.
bool is_recorded(const Tensor& self, const Number& min, const Number& max) {
  return may_need_gradient(self) && (min || max) && !is_complex(min) && !is_complex(max);
}
bool is_recorded(const Tensor& self, const Scalar& bound) {
  return is_recorded(self, bound, std::nullopt);
}

Tensor recorded_clamp(
    const Tensor& self, const Number& min, const Number& max, Convention c, bool self_will_change) {
  if (c.gradient == Gradient::straight_through) {
    return clampgrad::_clamp_straight_through(self, min, max);
  }
  const auto gate = static_cast<int64_t>(gate_of(c));
  if (fast(self, min, max)) {
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

Tensor& recorded_clamp_(Tensor& self, const Number& min, const Number& max, Convention c) {
  if (c.gradient != Gradient::straight_through && fast(self, min, max)) {
    const auto order = memory_order(self).value_or(kContiguousOrder);
    return record_clamp_(self, min, max, gate_of(c), order);
  }
  // copy_ gives the checks of an in-place operator.
  return self.copy_(recorded_clamp(self, min, max, c, /*self_will_change=*/true));
}

} // namespace clampgrad
