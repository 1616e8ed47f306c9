// Includes CLAMPGRAD_LOOPS once per instruction set, with CLAMPGRAD_ISA naming a namespace for it.
// The caller chooses between them at run time. No include guard.

#define CLAMPGRAD_ISA baseline
#include CLAMPGRAD_LOOPS
#undef CLAMPGRAD_ISA

#if defined(__x86_64__) && defined(__GNUC__)
#define CLAMPGRAD_X86_ISAS 1

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,bmi,bmi2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,bmi,bmi2")
#endif
#define CLAMPGRAD_ISA avx2
#include CLAMPGRAD_LOOPS
#undef CLAMPGRAD_ISA
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,bmi,bmi2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,bmi,bmi2,prefer-vector-width=512")
#endif
#define CLAMPGRAD_ISA avx512
#include CLAMPGRAD_LOOPS
#undef CLAMPGRAD_ISA
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif

#undef CLAMPGRAD_LOOPS
