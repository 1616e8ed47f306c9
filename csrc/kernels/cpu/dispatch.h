#pragma once
// From a dtype to its type, and from this machine to its instruction set.

#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

namespace clampgrad::cpu {

// Calls f with a value of the scalar type.
template <typename F>
void dispatch(at::ScalarType dtype, const char* name, F f) {
  switch (dtype) {
    case at::kFloat:
      return f(float());
    case at::kDouble:
      return f(double());
    case at::kHalf:
      return f(at::Half());
    case at::kBFloat16:
      return f(at::BFloat16());
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "\"", name, "\" not implemented for '", dtype, "'");
  }
}

// The instruction set that ATen uses here; the environment variable ATEN_CPU_CAPABILITY can lower
// it.
enum class Isa { baseline, avx2, avx512 };
Isa isa();

// `loops`, an expression, as compiled for that set (foreach_isa.h).
#if defined(__x86_64__) && defined(__GNUC__)
#define CLAMPGRAD_X86_ISAS 1
#define CLAMPGRAD_BEST(loops)                                                                \
  (::clampgrad::cpu::isa() == ::clampgrad::cpu::Isa::avx512     ? ::clampgrad::avx512::loops \
       : ::clampgrad::cpu::isa() == ::clampgrad::cpu::Isa::avx2 ? ::clampgrad::avx2::loops   \
                                                                : ::clampgrad::baseline::loops)
#else
#define CLAMPGRAD_BEST(loops) ::clampgrad::baseline::loops
#endif

} // namespace clampgrad::cpu
