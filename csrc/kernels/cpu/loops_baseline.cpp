// The loops for any machine: SSE2 on x86-64, NEON on arm64, through the vector extension of GCC and
// Clang; element by element where there is none. See Note [One translation unit per instruction
// set].

#include "kernels/cpu/loops.h"

#if defined(__GNUC__) && !defined(CLAMPGRAD_SCALAR_LOOPS)
#define CLAMPGRAD_VECTOR_BYTES 16
#if defined(__SSE2__)
#include <immintrin.h>
#endif
#endif

#define CLAMPGRAD_ISA baseline
CLAMPGRAD_BEGIN_LOOPS
#include "kernels/cpu/every_loop.h"
