// For any machine: SSE2 on x86-64, NEON on arm64, through the vector extension of GCC and Clang.

#define CLAMPGRAD_SET baseline
#define CLAMPGRAD_VECTOR_BYTES 16
#include "kernels/cpu/instantiate_loops.h"
