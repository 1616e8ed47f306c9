#pragma once
// From this machine to its instruction set.

namespace clampgrad::cpu {

// The instruction set that ATen uses here; the environment variable ATEN_CPU_CAPABILITY can lower
// it.
enum class Isa { baseline, avx2, avx512 };
Isa isa();

// `loops`, an expression, as compiled for that set (loops.h). CLAMPGRAD_SCALAR_LOOPS: as where the
// compiler has no vector extension.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(CLAMPGRAD_SCALAR_LOOPS)
#define CLAMPGRAD_X86_ISAS 1
#define CLAMPGRAD_BEST(loops)                                                                \
  (::clampgrad::cpu::isa() == ::clampgrad::cpu::Isa::avx512     ? ::clampgrad::avx512::loops \
       : ::clampgrad::cpu::isa() == ::clampgrad::cpu::Isa::avx2 ? ::clampgrad::avx2::loops   \
                                                                : ::clampgrad::baseline::loops)
#else
#define CLAMPGRAD_BEST(loops) ::clampgrad::baseline::loops
#endif

} // namespace clampgrad::cpu
