#pragma once
// The loops over flat memory, one per call and dtype, and the instruction sets they are compiled
// for.
//
// loops_<set>.cpp compiles every loop for one set (every_loop.h), in a namespace of that name; the
// kernels take the best one that runs here (kernels.cpp).

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
