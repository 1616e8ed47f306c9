// Vectors of the instruction set at hand. No include guard, and no inline functions of the standard
// library: Note [One translation unit per instruction set].

namespace clampgrad::CLAMPGRAD_INSTANCE {
namespace {

template <typename Lane>
struct VectorOf {
  typedef Lane type __attribute__((vector_size(CLAMPGRAD_VECTOR_BYTES)));
};
template <typename Lane>
using Vector = typename VectorOf<Lane>::type;

template <typename Lane>
constexpr int lanes = CLAMPGRAD_VECTOR_BYTES / sizeof(Lane);

// Hides from the compiler where a value of AVX-512 comes from, so that it does not merge
// instructions. A macro, because the constraint is part of the syntax of asm.
#if CLAMPGRAD_VECTOR_BYTES == 64 && defined(__AVX512F__)
#define CLAMPGRAD_HIDE(constraint, value) asm("" : constraint(value))
#else
#define CLAMPGRAD_HIDE(constraint, value)
#endif

template <typename Lane>
CLAMPGRAD_HOST_DEVICE Vector<Lane> load(const Lane* from) {
  Vector<Lane> v;
  std::memcpy(&v, from, sizeof(v));
  // The compiler would merge a mask into the load. On some processors the load then waits for the
  // bits of the mask, and a cache miss on these delays the 512 elements that they belong to.
  CLAMPGRAD_HIDE("+v", v);
  return v;
}
template <typename Lane>
CLAMPGRAD_HOST_DEVICE void store(Lane* to, Vector<Lane> v) {
  std::memcpy(to, &v, sizeof(v));
}
template <typename Lane>
CLAMPGRAD_HOST_DEVICE Vector<Lane> splat(Lane value) {
  Vector<Lane> v;
  for (int i = 0; i < lanes<Lane>; ++i) {
    v[i] = value;
  }
  return v;
}

template <typename M>
CLAMPGRAD_HOST_DEVICE auto lane_of(M mask) {
  return mask[0];
}

#if CLAMPGRAD_VECTOR_BYTES == 64
// GCC's vectors compare to a vector. AVX-512 compares to a k register, an integer of one bit per
// lane. These functions come before the rules, because the rules would take their own templates
// otherwise. The predicates are _CMP_EQ_OQ, _CMP_LT_OS and _CMP_LE_OS for numbers, _MM_CMPINT_EQ,
// _LT and _LE for integers. Macros, because an intrinsic is no argument of a template.
#define CLAMPGRAD_K_COMPARE(name, predicate, V, type, compare)                       \
  CLAMPGRAD_HOST_DEVICE auto name(V a, V b) {                                        \
    return compare(reinterpret_cast<type>(a), reinterpret_cast<type>(b), predicate); \
  }
#define CLAMPGRAD_K_REGISTERS(V, type, compare, blend)                                             \
  CLAMPGRAD_K_COMPARE(eq, 0, V, type, compare)                                                     \
  CLAMPGRAD_K_COMPARE(lt, 1, V, type, compare)                                                     \
  CLAMPGRAD_K_COMPARE(le, 2, V, type, compare)                                                     \
  CLAMPGRAD_HOST_DEVICE V select(decltype(eq(V(), V())) mask, V a, V b) {                          \
    /* Clang, and GCC from 16 on, would make vmaxps and vminps of it: Note [vmaxps]. */            \
    if constexpr (std::is_floating_point_v<decltype(lane_of(V()))>) {                              \
      CLAMPGRAD_HIDE("+k", mask);                                                                  \
    }                                                                                              \
    return reinterpret_cast<V>(blend(mask, reinterpret_cast<type>(b), reinterpret_cast<type>(a))); \
  }
CLAMPGRAD_K_REGISTERS(Vector<float>, __m512, _mm512_cmp_ps_mask, _mm512_mask_blend_ps)
CLAMPGRAD_K_REGISTERS(Vector<double>, __m512d, _mm512_cmp_pd_mask, _mm512_mask_blend_pd)
CLAMPGRAD_K_REGISTERS(Vector<int16_t>, __m512i, _mm512_cmp_epi16_mask, _mm512_mask_blend_epi16)
CLAMPGRAD_K_REGISTERS(Vector<uint16_t>, __m512i, _mm512_cmp_epu16_mask, _mm512_mask_blend_epi16)
CLAMPGRAD_K_REGISTERS(Vector<int32_t>, __m512i, _mm512_cmp_epi32_mask, _mm512_mask_blend_epi32)
CLAMPGRAD_K_REGISTERS(Vector<int64_t>, __m512i, _mm512_cmp_epi64_mask, _mm512_mask_blend_epi64)
#undef CLAMPGRAD_K_REGISTERS

// Note [vmaxps]
// ~~~~~~~~~~~~~
// After vmaxps and vminps of 512 bits, Intel's processors run slower for some microseconds, which
// shows in a call for few elements. There a comparison and a blend take no longer for many
// elements. A Zen 4 makes one k register in a cycle, and so compares half as fast as it takes a
// maximum. On AMD's processors, clamps between numbers take max_instruction()
// (MaxInstructionElement in foreach_word.h), and those of 16 bits few comparisons
// (UnsignedCompareElement).
template <typename V>
CLAMPGRAD_HOST_DEVICE V select_if_less(V a, V b, V less, V than) {
  return select(lt(less, than), b, a);
}
// The instructions return their second operand where one is NaN, and of two zeros.
#define CLAMPGRAD_LARGER(V, type, max, min)                                                \
  CLAMPGRAD_HOST_DEVICE V larger(V a, V b) {                                               \
    return select_if_less(a, b, a, b);                                                     \
  }                                                                                        \
  CLAMPGRAD_HOST_DEVICE V lesser(V a, V b) {                                               \
    return select_if_less(a, b, b, a);                                                     \
  }                                                                                        \
  CLAMPGRAD_HOST_DEVICE V max_instruction(V a, V b) {                                      \
    return reinterpret_cast<V>(max(reinterpret_cast<type>(b), reinterpret_cast<type>(a))); \
  }                                                                                        \
  CLAMPGRAD_HOST_DEVICE V min_instruction(V a, V b) {                                      \
    return reinterpret_cast<V>(min(reinterpret_cast<type>(b), reinterpret_cast<type>(a))); \
  }
CLAMPGRAD_LARGER(Vector<float>, __m512, _mm512_max_ps, _mm512_min_ps)
CLAMPGRAD_LARGER(Vector<double>, __m512d, _mm512_max_pd, _mm512_min_pd)
#undef CLAMPGRAD_LARGER
#undef CLAMPGRAD_K_COMPARE

template <typename M> // of masks
CLAMPGRAD_HOST_DEVICE M select(M mask, M a, M b) {
  return (mask & a) | (~mask & b);
}
#endif

} // namespace
} // namespace clampgrad::CLAMPGRAD_INSTANCE
