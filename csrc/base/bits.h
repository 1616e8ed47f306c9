#pragma once
// Note [Bit planes]
// ~~~~~~~~~~~~~~~~~
// A fused forward records a code of one to three bits per element, which is all that its backward
// needs of the inputs. Codes are stored as bit planes: bit p of the code of element i is bit i of
// plane p. Each plane consists of whole 64-bit words, and the bits beyond the last element are 0.
// Elements are counted in memory order, see Note [Memory order]. What the codes mean, and how they
// are packed and unpacked, stands with the rules (kernels/rules/conventions.h).

#include <cstdint>

#if defined(__CUDACC__)
#define CLAMPGRAD_HOST_DEVICE __host__ __device__ __forceinline__
#elif defined(_MSC_VER)
#define CLAMPGRAD_HOST_DEVICE __forceinline
#else
#define CLAMPGRAD_HOST_DEVICE inline __attribute__((always_inline))
#endif

namespace clampgrad {

// Planes are made of words of 64 elements, each plane of whole words.
constexpr int64_t kWord = 64;

constexpr int64_t words(int64_t n) {
  return (n + kWord - 1) / kWord;
}
constexpr int64_t planes_bytes(int planes, int64_t n) {
  return planes * words(n) * 8;
}

} // namespace clampgrad
