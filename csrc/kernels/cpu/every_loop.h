// All loops for the instruction set CLAMPGRAD_ISA: loops_<set>.cpp includes this once.

// clang-format off: each stands on those before it
#include "kernels/cpu/vectors.h"
#include "kernels/rules/all.h"
#include "kernels/cpu/gate_loops.h"
#include "kernels/cpu/share_loops.h"
// clang-format on

namespace clampgrad::CLAMPGRAD_ISA {

template <typename T>
Loops<T> all_loops() {
  Loops<T> l;
  add_gate_loops(l);
  add_share_loops(l);
  return l;
}

#define CLAMPGRAD_LOOPS_OF(T) template Loops<T> all_loops();
CLAMPGRAD_FOR_EACH_DTYPE(CLAMPGRAD_LOOPS_OF)
#undef CLAMPGRAD_LOOPS_OF

} // namespace clampgrad::CLAMPGRAD_ISA
