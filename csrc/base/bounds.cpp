#include "base/bounds.h"

#include "base/path.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <c10/util/overflows.h>

#include <cmath>
#include <limits>

namespace clampgrad {

namespace {

// Whether the dtype holds this integer, which a compiler traces, without rounding it. The
// comparison is a guard of the graph, which then serves all integers that are small enough.
bool is_exact(const c10::SymInt& number, at::ScalarType dtype) {
  return AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "clamp", [&] {
    const auto limit = int64_t{1} << std::numeric_limits<scalar_t>::digits;
    return number <= limit && number >= -limit;
  });
}

} // namespace

bool is_nan(const Number& bound) {
  return bound && !bound->isSymbolic() && bound->isFloatingPoint() && std::isnan(bound->toDouble());
}

bool overflows(const Number& bound, const at::Tensor& self) {
  const auto dtype = self.is_cpu() ? self.scalar_type() : at::toOpMathType(self.scalar_type());
  return bound && !bound->isSymbolic() &&
      AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "clamp", [&] {
           return c10::overflows<scalar_t>(bound->toDouble());
         });
}

Number in_dtype(const Number& bound, const at::Tensor& self) {
  const auto dtype = self.scalar_type();
  // A number that a compiler traces stays a symbol where the dtype holds it unrounded, as float64
  // does any. Elsewhere it is rounded, so the graph is for its value now: a guard compares it.
  if (!bound || !is_fusable_dtype(dtype) || overflows(bound, self) ||
      (bound->isSymbolic() && dtype == at::kDouble)) {
    return bound;
  }
  if (bound->isSymInt()) {
    return is_exact(bound->toSymInt(), dtype)
        ? bound
        : in_dtype(bound->toSymInt().guard_int(__FILE__, __LINE__), self);
  }
  if (bound->isSymbolic()) {
    return in_dtype(bound->toSymFloat().guard_float(__FILE__, __LINE__), self);
  }
  return AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "clamp", [&] {
    const auto rounded = static_cast<scalar_t>(bound->to<at::opmath_type<scalar_t>>());
    return at::Scalar(static_cast<double>(rounded));
  });
}

} // namespace clampgrad
