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

  CLAMPGRAD_HOST_DEVICE void operator()(const Encoded<Op::kIn, L>& s, int64_t plane) const {
    WordOf<Mask<V>> recorded[Op::kPlanes];
    for (int i = 0; i < kWord; i += lanes<L>) {
      V in[Op::kIn], y;
      Mask<V> bits[Op::kPlanes];
      for (int k = 0; k < Op::kIn; ++k) {
        in[k] = load(s.in[k] + i);
      }
      op(in, y, bits);
      store(s.out[0] + i, y);
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

  CLAMPGRAD_HOST_DEVICE void operator()(const Decoded<Op::kOut, L>& s, int64_t plane) const {
    uint64_t recorded[Op::kPlanes];
    for (int p = 0; p < Op::kPlanes; ++p) {
      recorded[p] = s.bits[p * plane];
    }
    for (int i = 0; i < kWord; i += lanes<L>) {
      Mask<V> bits[Op::kPlanes];
      for (int p = 0; p < Op::kPlanes; ++p) {
        bits[p] = from_bits<Mask<V>>(recorded[p], i);
      }
      V out[Op::kOut];
      op(load(s.in[0] + i), bits, out);
      for (int k = 0; k < Op::kOut; ++k) {
        if (Op::kOut == 1 || s.out[k]) {
          store(s.out[k] + i, out[k]);
        }
      }
    }
  }
};

} // namespace

template <typename T>
Loops<T> all_loops() {
  using E = ElementOf<T>;
  using L = Lane<T>;
#define CLAMPGRAD_LOOP(kernel, Word)                                                     \
  [](const auto& s, int64_t begin, int64_t end, auto... args) {                          \
    with_##kernel<E>(                                                                    \
        args..., [&](auto op) { foreach_word(s, begin, end, Word<decltype(op)>{op}); }); \
  }
  Loops<T> l;
  l.gate_encode =
      [](const Encoded<1, L>& s, int64_t begin, int64_t end, const Numbers<L>& b, Gate gate) {
        const Bounds<Vector<L>> bounds = {splat(b.lo), splat(b.hi)};
        with_gate_encode<E, ClampByComparison>(bounds, b.has_lo, b.has_hi, gate, [&](auto op) {
          foreach_word(s, begin, end, EncodeWord<decltype(op)>{op});
        });
      };
  l.gate_decode = CLAMPGRAD_LOOP(gate_decode, DecodeWord);
  l.pair_encode = CLAMPGRAD_LOOP(pair_encode, EncodeWord);
  l.pair_decode = CLAMPGRAD_LOOP(pair_decode, DecodeWord);
  l.triple_encode = CLAMPGRAD_LOOP(triple_encode, EncodeWord);
  l.triple_decode = CLAMPGRAD_LOOP(triple_decode, DecodeWord);
#undef CLAMPGRAD_LOOP
  return l;
}

#define CLAMPGRAD_LOOPS_OF(T) template Loops<T> all_loops<T>();
CLAMPGRAD_FOR_EACH_DTYPE(CLAMPGRAD_LOOPS_OF)
#undef CLAMPGRAD_LOOPS_OF

} // namespace clampgrad::CLAMPGRAD_ISA
