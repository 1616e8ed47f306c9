// All loops for the instruction set CLAMPGRAD_ISA: loops_<set>.cpp includes this once.

// clang-format off: each stands on those before it
#if defined(CLAMPGRAD_VECTOR_BYTES)
#include "kernels/cpu/vectors.h"
#else
#include "kernels/cpu/scalars.h"
#endif
#include "kernels/cpu/walk.h"
#include "kernels/rules/all.h"
#include "kernels/rules/ops.h"
// clang-format on

namespace clampgrad::CLAMPGRAD_ISA {
namespace {

template <typename Op>
struct EncodeWord {
  static constexpr int kPlanesWritten = Op::kPlanes;
  using L = typename Op::E::Lane;
  using V = Vector<L>;
  Op op;

  CLAMPGRAD_HOST_DEVICE void operator()(
      const MemoryOf<typename Op::Call, L>& s, int64_t plane) const {
    constexpr int kIn = Op::Call::kIn;
    WordOf<Mask<V>> recorded[Op::kPlanes];
    for (int i = 0; i < kWord; i += lanes<L>) {
      V in[kIn], y[1];
      Mask<V> bits[Op::kPlanes];
      for (int k = 0; k < kIn; ++k) {
        in[k] = load(s.in[k] + i);
      }
      op(in, bits, y);
      store(s.out[0] + i, y[0]);
      for (int p = 0; p < Op::kPlanes; ++p) {
        recorded[p].set(i, bits[p]);
      }
    }
    for (int p = 0; p < Op::kPlanes; ++p) {
      s.bits[p * plane] = recorded[p].bits();
    }
  }
};

template <typename Op>
struct DecodeWord {
  static constexpr int kPlanesWritten = 0;
  using L = typename Op::E::Lane;
  using V = Vector<L>;
  Op op;

  CLAMPGRAD_HOST_DEVICE void operator()(
      const MemoryOf<typename Op::Call, L>& s, int64_t plane) const {
    constexpr int kOut = Op::Call::kOut;
    uint64_t recorded[Op::kPlanes];
    for (int p = 0; p < Op::kPlanes; ++p) {
      recorded[p] = s.bits[p * plane];
    }
    for (int i = 0; i < kWord; i += lanes<L>) {
      Mask<V> bits[Op::kPlanes];
      for (int p = 0; p < Op::kPlanes; ++p) {
        bits[p] = from_bits<Mask<V>>(recorded[p], i);
      }
      const V g[1] = {load(s.in[0] + i)};
      V out[kOut];
      op(g, bits, out);
      for (int k = 0; k < kOut; ++k) {
        if (kOut == 1 || s.out[k]) {
          store(s.out[k] + i, out[k]);
        }
      }
    }
  }
};

} // namespace

template <typename T, typename Call>
Loop<T, Call> loop() {
  return [](const MemoryOf<Call, Lane<T>>& s, const Call& call, int64_t begin, int64_t end) {
    with_op<ElementOf<T>>(call, [&](auto op) {
      using Op = decltype(op);
      using OpWord = std::conditional_t<encodes<Call>, EncodeWord<Op>, DecodeWord<Op>>;
      foreach_word(s, begin, end, OpWord{op});
    });
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
