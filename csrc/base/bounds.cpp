#include "base/bounds.h"

#include "base/path.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <c10/util/overflows.h>

#include <cmath>
#include <limits>

namespace clampgrad {

namespace {

at::Scalar (*ask)(const at::Scalar&) = nullptr;

bool is_symbolic_number(const Number& bound) {
  return bound && bound->isSymbolic() && !bound->isBoolean();
}

c10::SymNode node_of(const at::Scalar& symbol) {
  return symbol.isFloatingPoint() ? symbol.toSymFloat().toSymNodeImpl()
                                  : symbol.toSymInt().toSymNode();
}

} // namespace

bool is_changing(const Number& bound) {
  return is_symbolic_number(bound) && node_of(*bound)->str().find("zf") != std::string::npos;
}

void guard_with(at::Scalar (*function)(const at::Scalar&)) {
  ask = function;
}
at::Scalar guarded(const at::Scalar& bound) {
  return ask && is_changing(bound) ? ask(bound) : bound;
}
Number guarded(const Number& bound) {
  return bound ? Number(guarded(*bound)) : bound;
}

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

bool stays_unrounded(const Number& bound, at::ScalarType dtype) {
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

Number in_dtype(const Number& bound, const at::Tensor& self) {
  const auto dtype = self.scalar_type();
  if (stays_unrounded(bound, dtype) && node_of(*bound)->has_hint()) {
    return in_dtype(at::Scalar(bound->toDouble()), self); // guards the value
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
