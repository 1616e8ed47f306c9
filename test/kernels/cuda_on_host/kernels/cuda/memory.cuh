#pragma once
// In place of csrc/kernels/cuda/memory.cuh. Traps at an address that is no multiple of 16.

#include <cstdint>

struct alignas(16) uint4 {
  uint32_t words[4];
};

namespace clampgrad::cuda {

inline uint4 load128(const void* from) {
  return *static_cast<const uint4*>(from);
}
inline void store128(void* to, uint4 words) {
  *static_cast<uint4*>(to) = words;
}

} // namespace clampgrad::cuda
