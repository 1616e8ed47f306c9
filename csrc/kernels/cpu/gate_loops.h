// The loops over flat memory, compiled once per instruction set: gate_kernel.cpp includes this file
// with CLAMPGRAD_ISA set to the name of a namespace, under the matching target pragma. No include
// guard, and nothing from the standard library: an inline function of a header that is compiled
// here could be linked into code that runs on an older machine.
//
// Work goes by words of 64 elements; the compiler vectorises the loop over a word.

#include "kernels/cpu/bits.h"

namespace clampgrad::cpu::CLAMPGRAD_ISA {
namespace {

template <Gate gate, bool has_lo, bool has_hi, typename T>
CLAMPGRAD_HOST_DEVICE void encode_word(
    const T* x,
    T* y,
    uint64_t* bits,
    int64_t plane,
    int count,
    const Bounds<T>& bounds,
    const Bounds<Key<T>>& keys) {
  int8_t first[kWord] = {}, second[kWord] = {};
  for (int i = 0; i < count; ++i) {
    const T value = x[i];
    const auto key = key_of(value);
    const bool number = is_number(value);
    const int code = encode<gate, has_lo, has_hi>(key, number, keys);
    y[i] = clamp_value<has_lo, has_hi>(value, key, number, bounds, keys);
    first[i] = static_cast<int8_t>(-(code & 1));
    second[i] = static_cast<int8_t>(-(code >> 1));
  }
  bits[0] = pack(first);
  if constexpr (planes(gate) == 2) {
    bits[plane] = pack(second);
  }
}

template <Gate gate, typename T>
CLAMPGRAD_HOST_DEVICE void decode_word(
    const T* g, T* dx, const uint64_t* bits, int64_t plane, int count) {
  int8_t first[kWord], second[kWord];
  unpack(bits[0], first);
  if constexpr (planes(gate) == 2) {
    unpack(bits[plane], second);
  }
  for (int i = 0; i < count; ++i) {
    const int code = planes(gate) == 2 ? first[i] | second[i] << 1 : first[i];
    dx[i] = decode<gate>(g[i], code);
  }
}

template <Gate gate, bool has_lo, bool has_hi, typename T>
void encode_words(
    const T* x,
    T* y,
    uint64_t* bits,
    int64_t n,
    int64_t begin,
    int64_t end,
    const Bounds<T>& bounds,
    const Bounds<Key<T>>& keys) {
  foreach_word(n, begin, end, [&](int64_t w, int count) __attribute__((always_inline)) {
    encode_word<gate, has_lo, has_hi>(
        x + w * kWord, y + w * kWord, bits + w, words(n), count, bounds, keys);
  });
}

template <Gate gate, typename T>
void decode_words(const T* g, T* dx, const uint64_t* bits, int64_t n, int64_t begin, int64_t end) {
  foreach_word(n, begin, end, [&](int64_t w, int count) __attribute__((always_inline)) {
    decode_word<gate>(g + w * kWord, dx + w * kWord, bits + w, words(n), count);
  });
}

template <bool has_lo, bool has_hi, typename T>
void select(const T* g, const T* x, T* dx, int64_t n, const Bounds<Key<T>>& keys) {
  for (int64_t i = 0; i < n; ++i) {
    const int code = encode<Gate::strict, has_lo, has_hi>(key_of(x[i]), is_number(x[i]), keys);
    dx[i] = decode<Gate::strict>(g[i], code);
  }
}

} // namespace

template <typename T>
Loops<T> loops() {
  Loops<T> l;
#define CLAMPGRAD_ENCODE(gate)                                 \
  l.encode[int(gate)][0] = encode_words<gate, true, true, T>;  \
  l.encode[int(gate)][1] = encode_words<gate, true, false, T>; \
  l.encode[int(gate)][2] = encode_words<gate, false, true, T>; \
  l.decode[int(gate)] = decode_words<gate, T>;
  CLAMPGRAD_ENCODE(Gate::strict)
  CLAMPGRAD_ENCODE(Gate::inclusive)
  CLAMPGRAD_ENCODE(Gate::half)
  CLAMPGRAD_ENCODE(Gate::with_grad)
  CLAMPGRAD_ENCODE(Gate::with_grad_maximize)
  CLAMPGRAD_ENCODE(Gate::restoring)
  CLAMPGRAD_ENCODE(Gate::restoring_maximize)
#undef CLAMPGRAD_ENCODE
  l.select[0] = select<true, true, T>;
  l.select[1] = select<true, false, T>;
  l.select[2] = select<false, true, T>;
  return l;
}

} // namespace clampgrad::cpu::CLAMPGRAD_ISA
