#pragma once
// Loads and stores of 128 bits. They are written in PTX: nvcc splits a plain assignment into four
// narrow accesses where it sees fit, and its intrinsics order memory more strongly than is needed.

namespace clampgrad::cuda {

__device__ __forceinline__ uint4 load128(const void* from) {
  uint4 words;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(__cvta_generic_to_global(from)));
  return words;
}

__device__ __forceinline__ void store128(void* to, uint4 words) {
  asm volatile(
      "st.global.v4.u32 [%0], {%1, %2, %3, %4};"
      :
      : "l"(__cvta_generic_to_global(to)), "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w)
      : "memory");
}

} // namespace clampgrad::cuda
