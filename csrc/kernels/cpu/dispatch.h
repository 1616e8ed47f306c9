#pragma once
// From a dtype to the element type that the CPU loops use for it.

#include "kernels/cpu/float16.h"

#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

namespace clampgrad::cpu {

// Calls f(element type, scalar type of ATen).
template <typename F>
void dispatch(at::ScalarType dtype, const char* name, F f) {
  switch (dtype) {
    case at::kFloat:
      return f(float(), float());
    case at::kDouble:
      return f(double(), double());
    case at::kHalf:
      return f(Float16<Format::half>(), at::Half());
    case at::kBFloat16:
      return f(Float16<Format::bfloat>(), at::BFloat16());
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "\"", name, "\" not implemented for '", dtype, "'");
  }
}

// True for AVX2 and for AVX-512 on this machine.
struct Isas {
  bool avx2 = false, avx512 = false;
};
inline Isas isas() {
#if defined(__x86_64__) && defined(__GNUC__)
  return {
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2"),
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
          __builtin_cpu_supports("avx512dq")};
#else
  return {};
#endif
}

} // namespace clampgrad::cpu
