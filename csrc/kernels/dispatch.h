#pragma once
// From a dtype to its type.

#include <c10/core/ScalarType.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Exception.h>
#include <c10/util/Half.h>

namespace clampgrad {

// Calls f with a value of the scalar type.
template <typename F>
void dispatch(at::ScalarType dtype, const char* name, F f) {
  switch (dtype) {
    case at::kFloat:
      return f(float());
    case at::kDouble:
      return f(double());
    case at::kHalf:
      return f(c10::Half());
    case at::kBFloat16:
      return f(c10::BFloat16());
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "\"", name, "\" not implemented for '", dtype, "'");
  }
}

} // namespace clampgrad
