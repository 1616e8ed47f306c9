// The loops for AVX2. See Note [One translation unit per instruction set].

#include "kernels/cpu/loops.h"

#if defined(CLAMPGRAD_X86_ISAS)

#include <immintrin.h>

#define CLAMPGRAD_ISA avx2
#define CLAMPGRAD_VECTOR_BYTES 32
CLAMPGRAD_BEGIN_LOOPS_FOR("avx2")
#include "kernels/cpu/every_loop.h"
CLAMPGRAD_END_LOOPS_FOR

#endif
