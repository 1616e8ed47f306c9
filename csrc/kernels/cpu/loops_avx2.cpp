#define CLAMPGRAD_SET avx2
#define CLAMPGRAD_VECTOR_BYTES 32
#define CLAMPGRAD_TARGET "avx2"
#include "kernels/cpu/every_loop.h"
