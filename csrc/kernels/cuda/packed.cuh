#pragma once
// Instructions for two 16-bit numbers at once, which lie in one register. In masks, all 16 bits of
// a number are set, or none.

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstring>
#include <type_traits>

namespace clampgrad::cuda {

// Whether the GPU compares two of these at once. What it lacks, nvcc composes, which takes more
// instructions than to compare floats.
template <typename T>
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr bool compares_in_pairs = std::is_same_v<T, c10::Half>;
#else
constexpr bool compares_in_pairs = true;
#endif

template <typename T>
using Vec2 = std::conditional_t<std::is_same_v<T, c10::Half>, __half2, __nv_bfloat162>;

template <typename T>
__device__ __forceinline__ Vec2<T> two(uint32_t bits) {
  Vec2<T> numbers;
  std::memcpy(&numbers, &bits, sizeof(numbers));
  return numbers;
}
template <typename Numbers>
__device__ __forceinline__ uint32_t bits_of(Numbers numbers) {
  uint32_t bits;
  std::memcpy(&bits, &numbers, sizeof(bits));
  return bits;
}

template <typename T>
__device__ __forceinline__ uint32_t eq2(uint32_t a, uint32_t b) {
  return __heq2_mask(two<T>(a), two<T>(b));
}
template <typename T>
__device__ __forceinline__ uint32_t lt2(uint32_t a, uint32_t b) {
  return __hlt2_mask(two<T>(a), two<T>(b));
}
template <typename T>
__device__ __forceinline__ uint32_t le2(uint32_t a, uint32_t b) {
  return __hle2_mask(two<T>(a), two<T>(b));
}
// The arguments must not be NaN. These instructions order -0 before +0.
template <typename T>
__device__ __forceinline__ uint32_t max2(uint32_t a, uint32_t b) {
  return bits_of(__hmax2(two<T>(a), two<T>(b)));
}
template <typename T>
__device__ __forceinline__ uint32_t min2(uint32_t a, uint32_t b) {
  return bits_of(__hmin2(two<T>(a), two<T>(b)));
}
// Rounded once.
template <typename T>
__device__ __forceinline__ uint32_t mul2(uint32_t a, float b) {
  if constexpr (std::is_same_v<T, c10::Half>) {
    return bits_of(__hmul2(two<T>(a), __float2half2_rn(b)));
  } else {
    return bits_of(__hmul2(two<T>(a), __float2bfloat162_rn(b)));
  }
}

// 1 where a <= b, else 0: one instruction, and no predicate.
__device__ __forceinline__ float le1(float a, float b) {
  float one;
  asm("set.le.f32.f32 %0, %1, %2;" : "=f"(one) : "f"(a), "f"(b));
  return one;
}

// Copies bit 7 to the 16 low bits of a mask, and bit 31 to the 16 high ones.
__device__ __forceinline__ uint32_t expand_sign_bits(uint32_t bytes) {
  uint32_t mask;
  asm("prmt.b32 %0, %1, 0, 0xbb88;" : "=r"(mask) : "r"(bytes));
  return mask;
}

} // namespace clampgrad::cuda
