#include "base/bounds.h"

#include "base/path.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <c10/util/overflows.h>

#include <cmath>
#include <limits>

namespace clampgrad {

namespace {

at::Scalar (*symbol_guard)(const at::Scalar&) = nullptr;

bool is_symbolic_number(const OptionalScalar& bound) {
  return bound && bound->isSymbolic() && !bound->isBoolean();
}

c10::SymNode node_of(const at::Scalar& symbol) {
  return symbol.isFloatingPoint() ? symbol.toSymFloat().toSymNodeImpl()
                                  : symbol.toSymInt().toSymNode();
}

} // namespace

bool depends_on_dynamic_float(const OptionalScalar& bound) {
  return is_symbolic_number(bound) && node_of(*bound)->str().find("zf") != std::string::npos;
}

void set_symbol_guard(at::Scalar (*function)(const at::Scalar&)) {
  symbol_guard = function;
}
at::Scalar guard_dynamic_floats(const at::Scalar& bound) {
  return symbol_guard && depends_on_dynamic_float(bound) ? symbol_guard(bound) : bound;
}
OptionalScalar guard_dynamic_floats(const OptionalScalar& bound) {
  return bound ? OptionalScalar(guard_dynamic_floats(*bound)) : bound;
}

bool is_nan(const OptionalScalar& bound) {
  return bound && !bound->isSymbolic() && bound->isFloatingPoint() && std::isnan(bound->toDouble());
}

bool overflows(const OptionalScalar& bound, const at::Tensor& self) {
  const auto dtype = self.is_cpu() ? self.scalar_type() : at::toOpMathType(self.scalar_type());
  return bound && !bound->isSymbolic() &&
      AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "clamp", [&] {
           return c10::overflows<scalar_t>(bound->toDouble());
         });
}

bool is_left_unrounded(const OptionalScalar& bound, at::ScalarType dtype) {
  if (!is_symbolic_number(bound) || !at::isReducedFloatingType(dtype)) {
    return false;
  }
  using Half = std::numeric_limits<at::Half>;
  using BFloat16 = std::numeric_limits<at::BFloat16>;
  // The dtype holds this integer, and all that are nearer to 0.
  const auto exact = int64_t{1} << (dtype == at::kHalf ? Half::digits : BFloat16::digits);
  return bound->isFloatingPoint() || !TORCH_GUARD_OR_FALSE(bound->toSymInt().sym_ge(-exact)) ||
      !TORCH_GUARD_OR_FALSE(bound->toSymInt().sym_le(exact));
}

OptionalScalar round_to_dtype(const OptionalScalar& bound, const at::Tensor& self) {
  const auto dtype = self.scalar_type();
  if (is_left_unrounded(bound, dtype) && node_of(*bound)->has_hint()) {
    return round_to_dtype(at::Scalar(bound->toDouble()), self); // guards the value
  }
  if (!bound || bound->isSymbolic() || !is_fusable_dtype(dtype) || overflows(bound, self)) {
    return bound;
  }
  return AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "clamp", [&] {
    const auto rounded = static_cast<scalar_t>(bound->to<at::opmath_type<scalar_t>>());
    return at::Scalar(static_cast<double>(rounded));
  });
}

} // namespace clampgrad
