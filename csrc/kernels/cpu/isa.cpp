#include "kernels/cpu/isa.h"

#include <ATen/Version.h>

namespace clampgrad::cpu {

Isa isa() {
#if defined(CLAMPGRAD_X86_ISAS)
  const auto capability = at::get_cpu_capability();
  return capability == "AVX512" ? Isa::avx512 : capability == "AVX2" ? Isa::avx2 : Isa::baseline;
#else
  return Isa::baseline;
#endif
}

} // namespace clampgrad::cpu
