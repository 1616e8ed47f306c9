// All loops for the instruction set CLAMPGRAD_SET: loops_<set>.cpp includes this once.
//
// Note [One translation unit per instruction set]
// setup.py gives each of them the flags of its set (FLAGS_OF). What is compiled here may therefore
// not run on an older machine, and the linker keeps one copy of an inline function for everybody.
// So nothing that is included here may define one that is called out of line: the templates and
// functions below are in anonymous namespaces or in the namespace of the set, and those of the
// standard library are not used. A test looks for instructions of a set elsewhere
// (test_kernels.py).

#include "kernels/cpu/loops.h"

#if defined(CLAMPGRAD_VECTOR_BYTES) && defined(__SSE2__)
#include <immintrin.h>
#elif defined(CLAMPGRAD_VECTOR_BYTES) && defined(__AARCH64EL__)
#include <arm_neon.h>
#endif

#define CLAMPGRAD_ISA CLAMPGRAD_SET

// clang-format off: each stands on those before it
#if defined(CLAMPGRAD_VECTOR_BYTES)
#include "kernels/cpu/vectors.h"
#else
#include "kernels/cpu/scalars.h"
#endif
#include "kernels/rules/all.h"
#include "kernels/cpu/masks.h"
#include "kernels/cpu/walk.h"
#include "kernels/cpu/signalling.h"
#define CLAMPGRAD_SIGNALLED signalled
#include "kernels/rules/ops.h"
// clang-format on

namespace clampgrad::CLAMPGRAD_ISA {
namespace {

// A word of 64 elements: its bits are written where the call encodes, else read.
template <typename Of>
struct OpWord {
  using Op = Of;
  using Call = typename Op::Call;
  using L = typename Op::E::Lane;
  using M = Mask<Vector<L>>;
  Op op;

  CLAMPGRAD_HOST_DEVICE void operator()(const MemoryOf<Call, L>& s, int64_t plane) const {
    std::conditional_t<encodes<Call>, WordOf<M>, uint64_t> recorded[Op::kPlanes];
    if constexpr (!encodes<Call>) {
      for (int p = 0; p < Op::kPlanes; ++p) {
        recorded[p] = s.bits[p * plane];
      }
    }
    for (int i = 0; i < kWord; i += lanes<L>) {
      Vector<L> in[Call::kIn], out[Call::kOut];
      M bits[Op::kPlanes];
      for (int k = 0; k < Call::kIn; ++k) {
        in[k] = load(s.in[k] + i);
      }
      if constexpr (!encodes<Call>) {
        for (int p = 0; p < Op::kPlanes; ++p) {
          bits[p] = from_bits<M>(recorded[p], i);
        }
      }
      op(in, bits, out);
      for (int k = 0; k < Call::kOut; ++k) {
        if (Call::kOut == 1 || s.out[k]) {
          store(s.out[k] + i, out[k]);
        }
      }
      if constexpr (encodes<Call>) {
        for (int p = 0; p < Op::kPlanes; ++p) {
          recorded[p].set(i, bits[p]);
        }
      }
    }
    if constexpr (encodes<Call>) {
      for (int p = 0; p < Op::kPlanes; ++p) {
        s.bits[p * plane] = recorded[p].bits();
      }
    }
  }
};

} // namespace

template <typename T, typename Call>
Loop<T, Call> loop() {
  return [](const MemoryOf<Call, Lane<T>>& s, const Call& call, int64_t begin, int64_t end) {
    with_op<ElementOf<T>>(
        call, [&](auto op) { foreach_word(s, begin, end, OpWord<decltype(op)>{op}); });
#if defined(__AVX__)
    // GCC forgets this where a loop takes its bounds in registers. Without it, Intel's processors
    // run whatever comes next, until somebody does it, with a dependency on the upper halves.
    __builtin_ia32_vzeroupper();
#endif
  };
}

#define CLAMPGRAD_LOOPS(Call)                             \
  template Loop<float, Call> loop<float, Call>();         \
  template Loop<double, Call> loop<double, Call>();       \
  template Loop<c10::Half, Call> loop<c10::Half, Call>(); \
  template Loop<c10::BFloat16, Call> loop<c10::BFloat16, Call>();
CLAMPGRAD_FOR_EACH_CALL(CLAMPGRAD_LOOPS)
#undef CLAMPGRAD_LOOPS

} // namespace clampgrad::CLAMPGRAD_ISA
