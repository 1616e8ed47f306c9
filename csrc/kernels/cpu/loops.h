#pragma once
// The loops over flat memory, one per call and dtype, and the instruction sets they are compiled
// for.
//
// Note [One translation unit per instruction set]
// loops_<set>.cpp compiles every loop for one set, in a namespace of that name; the kernels take
// the best one that runs here (kernels.cpp). A pragma names the set, not a flag of the compiler,
// and it stands below all other includes: an inline function of the standard library that is
// compiled for AVX-512 might be the copy that the linker keeps for everybody.

#include "kernels/call.h"
#include "kernels/constant.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstring>

// CLAMPGRAD_SCALAR_LOOPS: as where the compiler has no vector extension.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(CLAMPGRAD_SCALAR_LOOPS)
#define CLAMPGRAD_X86_ISAS 1
#endif

namespace clampgrad {

// A call, over the words from one to another.
template <typename T, typename Call>
using Loop = void (*)(const MemoryOf<Call, Lane<T>>&, const Call&, int64_t begin, int64_t end);

#define CLAMPGRAD_DECLARE_LOOPS(isa)   \
  namespace isa {                      \
  template <typename T, typename Call> \
  Loop<T, Call> loop();                \
  }
CLAMPGRAD_DECLARE_LOOPS(baseline)
#if defined(CLAMPGRAD_X86_ISAS)
CLAMPGRAD_DECLARE_LOOPS(avx2)
CLAMPGRAD_DECLARE_LOOPS(avx512)
#endif
#undef CLAMPGRAD_DECLARE_LOOPS

} // namespace clampgrad

// Around the code for one set. GCC unrolls and vectorises what these loops need at -O3 alone; Clang
// does at -O2.
#define CLAMPGRAD_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define CLAMPGRAD_BEGIN_LOOPS
#define CLAMPGRAD_BEGIN_LOOPS_FOR(set) \
  CLAMPGRAD_PRAGMA(clang attribute push(__attribute__((target(set))), apply_to = function))
#define CLAMPGRAD_END_LOOPS_FOR CLAMPGRAD_PRAGMA(clang attribute pop)
#else
#if defined(__OPTIMIZE__)
#define CLAMPGRAD_BEGIN_LOOPS CLAMPGRAD_PRAGMA(GCC optimize("O3"))
#else
#define CLAMPGRAD_BEGIN_LOOPS
#endif
#define CLAMPGRAD_BEGIN_LOOPS_FOR(set) \
  CLAMPGRAD_BEGIN_LOOPS                \
  CLAMPGRAD_PRAGMA(GCC target(set))
#define CLAMPGRAD_END_LOOPS_FOR
#endif
