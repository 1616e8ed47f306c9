#define CLAMPGRAD_SET avx512
#define CLAMPGRAD_VECTOR_BYTES 64
#define CLAMPGRAD_TARGET "avx512f,avx512bw,avx512vl,avx512dq"
#include "kernels/cpu/every_loop.h"
