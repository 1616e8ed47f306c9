#pragma once
// The loops over flat memory, in a table per dtype, and the instruction sets they are compiled for.
//
// Note [One translation unit per instruction set]
// loops_<set>.cpp compiles every loop for one set, in a namespace of that name; the kernels take
// the best one that runs here (isa.h). A pragma names the set, not a flag of the compiler, and it
// stands below all other includes: an inline function of the standard library that is compiled for
// AVX-512 might be the copy that the linker keeps for everybody.

#include "kernels/constant.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/streams.h"
#include "kernels/rules/conventions.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstring>
#include <type_traits>

namespace clampgrad {

// The bounds of one call.
template <typename L>
struct Numbers {
  L lo, hi;
  bool has_lo, has_hi;
};

// A loop for each kernel (kernels/backend.h), over the words from one to another.
template <typename T>
struct Loops {
  using L = Lane<T>;

  void (*gate_encode)(const Encoded<1, L>&, int64_t, int64_t, const Numbers<L>&, Gate);
  void (*gate_decode)(const Decoded<1, L>&, int64_t, int64_t, Gate);
  void (*pair_encode)(const Encoded<2, L>&, int64_t, int64_t, bool, bool, PairCodes);
  void (*pair_decode)(const Decoded<2, L>&, int64_t, int64_t, Sharing, bool);
  void (*triple_encode)(const Encoded<3, L>&, int64_t, int64_t, TripleRule, int);
  void (*triple_decode)(const Decoded<3, L>&, int64_t, int64_t, Sharing);
};

#define CLAMPGRAD_FOR_EACH_DTYPE(_) _(float) _(double) _(c10::Half) _(c10::BFloat16)

#define CLAMPGRAD_DECLARE_LOOPS(isa) \
  namespace isa {                    \
  template <typename T>              \
  Loops<T> all_loops();              \
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
