// Instantiates all loops for the instruction set CLAMPGRAD_SET. loops_<set>.cpp includes this once.
//
// Note [One translation unit per instruction set]
// ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
// setup.py gives each of them the flags of its set (flags_of_files), so what is compiled here may
// not run on an older machine. But the linker keeps one copy of an inline function for everybody.
// So nothing that is included here may define one that is called out of line: the templates and
// functions below are in anonymous namespaces or in the namespace of the set, and those of the
// standard library are not used. test_kernels.py looks for instructions of a set elsewhere.

#include "kernels/cpu/instruction_sets.h"

#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__AARCH64EL__)
#include <arm_neon.h>
#endif

#define CLAMPGRAD_INSTANCE CLAMPGRAD_SET

// clang-format off: each stands on those before it
#include "kernels/cpu/vectors.h"
#include "kernels/rules/all.h"
#include "kernels/rules/ops.h"
#include "kernels/cpu/masks.h"
#include "kernels/cpu/foreach_word.h"
// clang-format on

namespace clampgrad::CLAMPGRAD_INSTANCE {

#define CLAMPGRAD_LOOPS(Call)                             \
  template Loop<float, Call> loop<float, Call>();         \
  template Loop<double, Call> loop<double, Call>();       \
  template Loop<c10::Half, Call> loop<c10::Half, Call>(); \
  template Loop<c10::BFloat16, Call> loop<c10::BFloat16, Call>();
CLAMPGRAD_FOR_EACH_CALL(CLAMPGRAD_LOOPS)
CLAMPGRAD_LOOPS(NumberValues)
#undef CLAMPGRAD_LOOPS

#define CLAMPGRAD_LOOPS(Call)                             \
  template Loop<c10::Half, Call> loop<c10::Half, Call>(); \
  template Loop<c10::BFloat16, Call> loop<c10::BFloat16, Call>();
CLAMPGRAD_LOOPS(TensorValues<2>)
CLAMPGRAD_LOOPS(TensorValues<3>)
#undef CLAMPGRAD_LOOPS

} // namespace clampgrad::CLAMPGRAD_INSTANCE
