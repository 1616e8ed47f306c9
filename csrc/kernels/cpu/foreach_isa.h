// Includes CLAMPGRAD_LOOPS once per instruction set, with CLAMPGRAD_ISA naming a namespace for it.
// The caller chooses between them at run time. No include guard.

#if defined(__OPTIMIZE__) && !defined(__clang__) // which optimises loops as much at -O2
#pragma GCC push_options
#pragma GCC optimize("O3")
#define CLAMPGRAD_O3
#endif

#define CLAMPGRAD_ISA baseline
#define CLAMPGRAD_VECTOR_BYTES 16
#include CLAMPGRAD_LOOPS
#undef CLAMPGRAD_VECTOR_BYTES
#undef CLAMPGRAD_ISA

#if defined(CLAMPGRAD_X86_ISAS)

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif
#define CLAMPGRAD_ISA avx2
#define CLAMPGRAD_VECTOR_BYTES 32
#include CLAMPGRAD_LOOPS
#undef CLAMPGRAD_VECTOR_BYTES
#undef CLAMPGRAD_ISA
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq")
#endif
#define CLAMPGRAD_ISA avx512
#define CLAMPGRAD_VECTOR_BYTES 64
#include CLAMPGRAD_LOOPS
#undef CLAMPGRAD_VECTOR_BYTES
#undef CLAMPGRAD_ISA
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif

#if defined(CLAMPGRAD_O3)
#pragma GCC pop_options
#undef CLAMPGRAD_O3
#endif

#undef CLAMPGRAD_LOOPS
