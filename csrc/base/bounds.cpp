#include "base/bounds.h"

#include "base/path.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <c10/util/overflows.h>

#include <cmath>
#include <limits>

namespace clampgrad {

namespace {

// A float that Dynamo made a symbol because it changes: "zf0" in torch's own spelling, which
// test_compile_training.py notices another of. One made of sizes or of data has no such symbol.
bool is_changing_float(const at::Scalar& number) {
  if (!number.isSymbolic() || !number.isFloatingPoint()) {
    return false;
  }
  const auto node = number.toSymFloat().toSymNodeImpl();
  return node->has_hint() && node->str().find("zf") != std::string::npos;
}

// Inductor computes in float32 what has 16 bits, a symbol too, be it of a float or an integer. So a
// graph is for one value of it.
bool would_not_be_rounded(const at::Scalar& number, at::ScalarType dtype) {
  if (!number.isSymbolic() || !at::isReducedFloatingType(dtype) || number.isBoolean()) {
    return false;
  }
  return number.isFloatingPoint() ? number.toSymFloat().toSymNodeImpl()->has_hint()
                                  : number.toSymInt().toSymNode()->has_hint();
}

} // namespace

bool is_changing(const Number& bound) {
  return bound && is_changing_float(*bound);
}

at::Scalar guarded(const at::Scalar& bound) {
  if (!is_changing_float(bound)) {
    return bound;
  }
  const auto number = bound.toSymFloat();
  // Dynamo replaces a symbol by the value that is asked of it alone: of -n, only once n is asked
  // for.
  number.toSymNodeImpl()->neg()->guard_float(__FILE__, __LINE__);
  return number.guard_float(__FILE__, __LINE__);
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

Number in_dtype(const Number& bound, const at::Tensor& self) {
  const auto dtype = self.scalar_type();
  if (bound && would_not_be_rounded(*bound, dtype)) {
    const auto value = bound->isFloatingPoint()
        ? at::Scalar(bound->toSymFloat().guard_float(__FILE__, __LINE__))
        : at::Scalar(bound->toSymInt().guard_int(__FILE__, __LINE__));
    return in_dtype(value, self);
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
