#pragma once
// Which loop runs.

#include "kernels/cpu/loops.h"

#include <ATen/Version.h>

namespace clampgrad::cpu {

// For the instruction set that ATen uses here (the variable ATEN_CPU_CAPABILITY can lower it).
template <typename T, typename Call>
Loop<T, Call> select_loop() {
#if defined(__x86_64__)
  const auto capability = at::get_cpu_capability();
  if (capability == "AVX512") {
    return avx512::loop<T, Call>();
  }
  if (capability == "AVX2") {
    return avx2::loop<T, Call>();
  }
#endif
  return baseline::loop<T, Call>();
}

} // namespace clampgrad::cpu
