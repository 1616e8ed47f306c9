#pragma once
// Note [Bits]
// ~~~~~~~~~~~
// A fused forward records one to three bits per element, which is all that its backward needs of
// the inputs. Bit b of element i is bit i % 64 of word b * word_count(n) + i / 64: the first bits
// of all elements lie together, then their second ones. The bits of the last word that belong to no
// element are 0. Elements are counted as they lie in memory: Note [Dim order]. The rules say what
// the bits mean (kernels/rules/).

#include <cstdint>

#if defined(__CUDACC__)
#define CLAMPGRAD_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define CLAMPGRAD_HOST_DEVICE inline __attribute__((always_inline))
#endif
// Of a rule, which compilers also evaluate: kernels/rules/check.cpp.
#define CLAMPGRAD_RULE CLAMPGRAD_HOST_DEVICE constexpr

namespace clampgrad {

constexpr int64_t kElementsPerWord = 64; // elements

// A word is also read as bytes, and as two words of 32 bits.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

constexpr int64_t word_count(int64_t n) {
  return (n + kElementsPerWord - 1) / kElementsPerWord;
}
constexpr int64_t bit_buffer_bytes(int per_element, int64_t n) {
  return per_element * word_count(n) * 8;
}

} // namespace clampgrad
