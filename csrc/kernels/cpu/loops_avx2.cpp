#include "kernels/cpu/instruction_sets.h"

#if defined(__x86_64__)
#define CLAMPGRAD_SET avx2
#define CLAMPGRAD_VECTOR_BYTES 32
#include "kernels/cpu/instantiate_loops.h"
#endif
