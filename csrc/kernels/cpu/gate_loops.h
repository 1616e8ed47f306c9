// The loops over flat memory, compiled once per instruction set: gate_kernel.cpp includes this file
// with CLAMPGRAD_ISA set to the name of a namespace, under the matching target pragma. No include
// guard, no includes, and nothing from the standard library: an inline function of a header that
// is compiled here could be linked into code that runs on an older machine.
//
// Work goes by words of 64 elements. The compiler vectorises the loop over a word; what it cannot
// see by itself is how 64 bytes become 64 bits and back.

namespace clampgrad::cpu::CLAMPGRAD_ISA {
namespace {

// 0 or -1 a byte -> a bit each.
CLAMPGRAD_HOST_DEVICE uint64_t pack(const int8_t* bytes) {
#if defined(__SSE2__)
  uint64_t word = 0;
  for (int i = 0; i < 4; ++i) {
    const auto part = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes) + i);
    word |= static_cast<uint64_t>(static_cast<uint32_t>(_mm_movemask_epi8(part))) << (16 * i);
  }
  return word;
#else
  uint64_t word = 0;
  for (int i = 0; i < kWord; ++i) {
    word |= static_cast<uint64_t>(bytes[i] & 1) << i;
  }
  return word;
#endif
}

// A bit -> a byte of 0 or 1.
CLAMPGRAD_HOST_DEVICE void unpack(uint64_t word, int8_t* bytes) {
  for (int i = 0; i < 8; ++i) {
    // Each of the eight bits of a byte into a byte of its own.
    const uint64_t byte = (word >> (8 * i)) & 0xff;
    const uint64_t low = ((byte & 0x7f) * 0x0002040810204081ull) & 0x0101010101010101ull;
    const uint64_t spread = low | (byte >> 7) << 56;
    __builtin_memcpy(bytes + 8 * i, &spread, 8);
  }
}

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

// Words [begin, end) of n elements; the last word of all may be partial.
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
  const int64_t plane = words(n), full = n / kWord < end ? n / kWord : end;
  for (int64_t w = begin; w < full; ++w) {
    encode_word<gate, has_lo, has_hi>(
        x + w * kWord, y + w * kWord, bits + w, plane, kWord, bounds, keys);
  }
  if (full < end) {
    encode_word<gate, has_lo, has_hi>(
        x + full * kWord, y + full * kWord, bits + full, plane, int(n % kWord), bounds, keys);
  }
}

template <Gate gate, typename T>
void decode_words(const T* g, T* dx, const uint64_t* bits, int64_t n, int64_t begin, int64_t end) {
  const int64_t plane = words(n), full = n / kWord < end ? n / kWord : end;
  for (int64_t w = begin; w < full; ++w) {
    decode_word<gate>(g + w * kWord, dx + w * kWord, bits + w, plane, kWord);
  }
  if (full < end) {
    decode_word<gate>(g + full * kWord, dx + full * kWord, bits + full, plane, int(n % kWord));
  }
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
#define CLAMPGRAD_ENCODE(gate)                                                       \
  l.encode[int(gate)][0] = encode_words<gate, true, true, T>;                        \
  l.encode[int(gate)][1] = encode_words<gate, true, false, T>;                       \
  l.encode[int(gate)][2] = encode_words<gate, false, true, T>;                       \
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
