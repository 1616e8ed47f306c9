// The loops of share_kernel.cpp over flat memory, compiled once per instruction set
// (foreach_isa.h).

#include "kernels/cpu/bits.h"

namespace clampgrad::cpu::CLAMPGRAD_ISA {
namespace {

template <typename T>
CLAMPGRAD_HOST_DEVICE Compared<Key<T>> compared(T x) {
  return {key_of(x), is_number(x)};
}

template <bool greater_wins, bool nan_loses, typename T>
void encode_pairs(const PairIn<T>& in, uint64_t* bits, int64_t n, int64_t begin, int64_t end) {
  const int64_t plane = words(n);
  const PairCodes codes = in.codes;
  foreach_word(n, begin, end, [&](int64_t w, int count) __attribute__((always_inline)) {
    const T *a = in.self + w * kWord, *b = in.other + w * kWord;
    T* y = in.y + w * kWord;
    int8_t first[kWord] = {}, second[kWord] = {};
    for (int i = 0; i < count; ++i) {
      const T self = a[i], other = b[i];
      const auto choice =
          encode_pair<greater_wins, nan_loses>(compared(self), compared(other), codes);
      y[i] = choice.takes_self ? self : other;
      first[i] = static_cast<int8_t>(-(choice.code & 1));
      second[i] = static_cast<int8_t>(-(choice.code >> 1));
    }
    bits[w] = pack(first);
    bits[plane + w] = pack(second);
  });
}

template <Rule rule, typename T>
void encode_triples(const TripleIn<T>& in, uint64_t* bits, int64_t n, int64_t begin, int64_t end) {
  const int64_t plane = words(n);
  const int differentiated = in.differentiated;
  foreach_word(n, begin, end, [&](int64_t w, int count) __attribute__((always_inline)) {
    const T *px = in.x + w * kWord, *plo = in.lo + w * kWord, *phi = in.hi + w * kWord;
    T* y = in.y + w * kWord;
    int8_t planes[3][kWord] = {};
    for (int i = 0; i < count; ++i) {
      const T tx = px[i], tlo = plo[i], thi = phi[i];
      const auto x = compared(tx), lo = compared(tlo), hi = compared(thi);
      const int code = encode_triple<rule>(x, lo, hi, differentiated);
      y[i] = clamp_value(tx, tlo, thi, x, lo, hi);
      planes[0][i] = static_cast<int8_t>(-(code & 1));
      planes[1][i] = static_cast<int8_t>(-(code >> 1 & 1));
      planes[2][i] = static_cast<int8_t>(-(code >> 2));
    }
    for (int p = 0; p < 3; ++p) {
      bits[p * plane + w] = pack(planes[p]);
    }
  });
}

template <Sharing sharing, typename T>
void decode_pairs(
    const PairOut<T>& out, const uint64_t* bits, int64_t n, int64_t begin, int64_t end) {
  const int64_t plane = words(n);
  const bool from_below = out.clamps_from_below;
  foreach_word(n, begin, end, [&](int64_t w, int count) __attribute__((always_inline)) {
    int8_t first[kWord], second[kWord];
    unpack(bits[w], first);
    unpack(bits[plane + w], second);
    const T* g = out.g + w * kWord;
    T self[kWord], other[kWord];
    for (int i = 0; i < count; ++i) {
      decode_pair<sharing>(g[i], first[i] | second[i] << 1, from_below, self[i], other[i]);
    }
    if (out.self) {
      __builtin_memcpy(out.self + w * kWord, self, count * sizeof(T));
    }
    if (out.other) {
      __builtin_memcpy(out.other + w * kWord, other, count * sizeof(T));
    }
  });
}

template <Sharing sharing, typename T>
void decode_triples(
    const TripleOut<T>& out, const uint64_t* bits, int64_t n, int64_t begin, int64_t end) {
  const int64_t plane = words(n);
  foreach_word(n, begin, end, [&](int64_t w, int count) __attribute__((always_inline)) {
    int8_t planes[3][kWord];
    for (int p = 0; p < 3; ++p) {
      unpack(bits[p * plane + w], planes[p]);
    }
    const T* g = out.g + w * kWord;
    T x[kWord], lo[kWord], hi[kWord];
    for (int i = 0; i < count; ++i) {
      const int code = planes[0][i] | planes[1][i] << 1 | planes[2][i] << 2;
      decode_triple<sharing>(g[i], code, x[i], lo[i], hi[i]);
    }
    T* const to[] = {out.x, out.lo, out.hi};
    const T* const from[] = {x, lo, hi};
    for (int p = 0; p < 3; ++p) {
      if (to[p]) {
        __builtin_memcpy(to[p] + w * kWord, from[p], count * sizeof(T));
      }
    }
  });
}

} // namespace

template <typename T>
ShareLoops<T> share_loops() {
  ShareLoops<T> l;
  l.encode_pair[0][0] = encode_pairs<false, false, T>;
  l.encode_pair[0][1] = encode_pairs<false, true, T>;
  l.encode_pair[1][0] = encode_pairs<true, false, T>;
  l.encode_pair[1][1] = encode_pairs<true, true, T>;
  l.encode_triple[0] = encode_triples<Rule::min_norm, T>;
  l.encode_triple[1] = encode_triples<Rule::inclusive, T>;
  l.encode_triple[2] = encode_triples<Rule::joint, T>;
  l.encode_triple[3] = encode_triples<Rule::half, T>;
  l.encode_triple[4] = encode_triples<Rule::pseudo, T>;
#define CLAMPGRAD_DECODE(sharing)                         \
  l.decode_pair[int(sharing)] = decode_pairs<sharing, T>; \
  l.decode_triple[int(sharing)] = decode_triples<sharing, T>;
  CLAMPGRAD_DECODE(Sharing::equal)
  CLAMPGRAD_DECODE(Sharing::nan_to_both)
  CLAMPGRAD_DECODE(Sharing::nested)
  CLAMPGRAD_DECODE(Sharing::nan_to_ends)
  CLAMPGRAD_DECODE(Sharing::with_grad)
  CLAMPGRAD_DECODE(Sharing::with_grad_maximize)
  CLAMPGRAD_DECODE(Sharing::restoring)
  CLAMPGRAD_DECODE(Sharing::restoring_maximize)
  CLAMPGRAD_DECODE(Sharing::straight_through)
#undef CLAMPGRAD_DECODE
  return l;
}

} // namespace clampgrad::cpu::CLAMPGRAD_ISA
