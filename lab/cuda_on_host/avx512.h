#pragma once
// The instructions of AVX-512 that csrc/kernels/cpu/vectors.h names, one lane after the other. Its
// other vectors are GCC's and Clang's, which any machine computes.

#include <immintrin.h>

#include <cstdint>

template <typename Lane>
struct LanesOf {
  typedef Lane type __attribute__((vector_size(64)));
};

static_assert(_CMP_EQ_OQ == 0 && _CMP_LT_OS == 1 && _CMP_LE_OS == 2);
static_assert(_MM_CMPINT_EQ == 0 && _MM_CMPINT_LT == 1 && _MM_CMPINT_LE == 2);

template <typename Lane, typename Mask, typename V>
Mask compared(V a, V b, int predicate) {
  const auto x = reinterpret_cast<typename LanesOf<Lane>::type>(a);
  const auto y = reinterpret_cast<typename LanesOf<Lane>::type>(b);
  uint64_t mask = 0;
  for (unsigned i = 0; i < sizeof(V) / sizeof(Lane); ++i) {
    const bool holds[] = {x[i] == y[i], x[i] < y[i], x[i] <= y[i]};
    mask |= uint64_t{holds[predicate]} << i;
  }
  return static_cast<Mask>(mask);
}

template <typename Lane, typename Mask, typename V>
V blended(Mask mask, V a, V b) {
  auto x = reinterpret_cast<typename LanesOf<Lane>::type>(a);
  const auto y = reinterpret_cast<typename LanesOf<Lane>::type>(b);
  for (unsigned i = 0; i < sizeof(V) / sizeof(Lane); ++i) {
    x[i] = mask >> i & 1 ? y[i] : x[i];
  }
  return reinterpret_cast<V>(x);
}

// The second operand where neither is larger (less).
template <typename Lane, bool less, typename V>
V extreme(V a, V b) {
  auto x = reinterpret_cast<typename LanesOf<Lane>::type>(a);
  const auto y = reinterpret_cast<typename LanesOf<Lane>::type>(b);
  for (unsigned i = 0; i < sizeof(V) / sizeof(Lane); ++i) {
    x[i] = (less ? x[i] < y[i] : x[i] > y[i]) ? x[i] : y[i];
  }
  return reinterpret_cast<V>(x);
}

#undef _mm512_cmp_ps_mask
#undef _mm512_cmp_pd_mask
#undef _mm512_cmp_epi16_mask
#undef _mm512_cmp_epu16_mask
#undef _mm512_cmp_epi32_mask
#undef _mm512_cmp_epi64_mask
#define _mm512_cmp_ps_mask(a, b, predicate) compared<float, __mmask16>(a, b, predicate)
#define _mm512_cmp_pd_mask(a, b, predicate) compared<double, __mmask8>(a, b, predicate)
#define _mm512_cmp_epi16_mask(a, b, predicate) compared<int16_t, __mmask32>(a, b, predicate)
#define _mm512_cmp_epu16_mask(a, b, predicate) compared<uint16_t, __mmask32>(a, b, predicate)
#define _mm512_cmp_epi32_mask(a, b, predicate) compared<int32_t, __mmask16>(a, b, predicate)
#define _mm512_cmp_epi64_mask(a, b, predicate) compared<int64_t, __mmask8>(a, b, predicate)
#define _mm512_max_ps(a, b) extreme<float, false>(a, b)
#define _mm512_min_ps(a, b) extreme<float, true>(a, b)
#define _mm512_max_pd(a, b) extreme<double, false>(a, b)
#define _mm512_min_pd(a, b) extreme<double, true>(a, b)
#define _mm512_mask_blend_ps(mask, a, b) blended<float, __mmask16>(mask, a, b)
#define _mm512_mask_blend_pd(mask, a, b) blended<double, __mmask8>(mask, a, b)
#define _mm512_mask_blend_epi16(mask, a, b) blended<uint16_t, __mmask32>(mask, a, b)
#define _mm512_mask_blend_epi32(mask, a, b) blended<int32_t, __mmask16>(mask, a, b)
#define _mm512_mask_blend_epi64(mask, a, b) blended<int64_t, __mmask8>(mask, a, b)
