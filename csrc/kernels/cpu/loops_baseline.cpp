// For any machine: SSE2 on x86-64, NEON on arm64, through the vector extension of GCC and Clang;
// element by element where there is none.

#define CLAMPGRAD_SET baseline
#if defined(__GNUC__) && !defined(CLAMPGRAD_SCALAR_LOOPS)
#define CLAMPGRAD_VECTOR_BYTES 16
#endif
#include "kernels/cpu/every_loop.h"
