// The loops for AVX-512. See Note [One translation unit per instruction set].

#include "kernels/cpu/loops.h"

#if defined(CLAMPGRAD_X86_ISAS)

#include <immintrin.h>

#define CLAMPGRAD_ISA avx512
#define CLAMPGRAD_VECTOR_BYTES 64
CLAMPGRAD_BEGIN_LOOPS_FOR("avx512f,avx512bw,avx512vl,avx512dq")
#include "kernels/cpu/every_loop.h"
CLAMPGRAD_END_LOOPS_FOR

#endif
