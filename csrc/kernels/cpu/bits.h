// 64 bytes to 64 bits and back: what a compiler does not see by itself. For inclusion into loops
// that are compiled per instruction set: no include guard, no includes (see foreach_isa.h).

namespace clampgrad::cpu::CLAMPGRAD_ISA {
namespace {

// 0 or -1 a byte -> a bit each.
CLAMPGRAD_HOST_DEVICE uint64_t pack(const int8_t* bytes) {
  uint64_t word = 0;
#if defined(__SSE2__)
  for (int i = 0; i < 4; ++i) {
    const auto part = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes) + i);
    word |= static_cast<uint64_t>(static_cast<uint32_t>(_mm_movemask_epi8(part))) << (16 * i);
  }
#else
  for (int i = 0; i < kWord; ++i) {
    word |= static_cast<uint64_t>(bytes[i] & 1) << i;
  }
#endif
  return word;
}

// A bit -> a byte of 0 or 1.
CLAMPGRAD_HOST_DEVICE void unpack(uint64_t word, int8_t* bytes) {
  for (int i = 0; i < 8; ++i) {
    const uint64_t byte = (word >> (8 * i)) & 0xff;
    const uint64_t low = ((byte & 0x7f) * 0x0002040810204081ull) & 0x0101010101010101ull;
    const uint64_t spread = low | (byte >> 7) << 56;
    __builtin_memcpy(bytes + 8 * i, &spread, 8);
  }
}

// Calls f(begin, count) for the words [begin, end) of n elements; the last one may be partial.
template <typename F>
CLAMPGRAD_HOST_DEVICE void foreach_word(int64_t n, int64_t begin, int64_t end, F f) {
  const int64_t full = n / kWord < end ? n / kWord : end;
  for (int64_t w = begin; w < full; ++w) {
    f(w, static_cast<int>(kWord));
  }
  if (full < end) {
    f(full, static_cast<int>(n % kWord));
  }
}

} // namespace
} // namespace clampgrad::cpu::CLAMPGRAD_ISA
