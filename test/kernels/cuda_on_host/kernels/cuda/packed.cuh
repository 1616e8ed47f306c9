#pragma once
// In place of csrc/kernels/cuda/packed.cuh: one number after the other, as floats.

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cmath>
#include <cstdint>

namespace clampgrad::cuda {

template <typename T>
#if defined(ONE_BY_ONE)
constexpr bool compares_in_pairs = false;
#else
constexpr bool compares_in_pairs = true;
#endif

template <typename T>
float number(uint32_t bits, int half) {
  return static_cast<float>(T(static_cast<uint16_t>(bits >> 16 * half), T::from_bits()));
}
template <typename F>
uint32_t each_half(const F& f) {
  return uint32_t{static_cast<uint16_t>(f(0))} | uint32_t{static_cast<uint16_t>(f(1))} << 16;
}

template <typename T>
uint32_t eq2(uint32_t a, uint32_t b) {
  return each_half([=](int h) { return -(number<T>(a, h) == number<T>(b, h)); });
}
template <typename T>
uint32_t lt2(uint32_t a, uint32_t b) {
  return each_half([=](int h) { return -(number<T>(a, h) < number<T>(b, h)); });
}
template <typename T>
uint32_t le2(uint32_t a, uint32_t b) {
  return each_half([=](int h) { return -(number<T>(a, h) <= number<T>(b, h)); });
}
// A GPU takes +0 for greater than -0; std::fmax may return either.
inline bool less(float a, float b) {
  return a < b || (a == b && std::signbit(a) && !std::signbit(b));
}
inline float greater_of(float a, float b) {
  return std::isnan(a) || less(a, b) ? b : a;
}
inline float lesser_of(float a, float b) {
  return std::isnan(a) || less(b, a) ? b : a;
}
template <typename T>
uint32_t max2(uint32_t a, uint32_t b) {
  return each_half([=](int h) { return T(greater_of(number<T>(a, h), number<T>(b, h))).x; });
}
template <typename T>
uint32_t min2(uint32_t a, uint32_t b) {
  return each_half([=](int h) { return T(lesser_of(number<T>(a, h), number<T>(b, h))).x; });
}
template <typename T>
uint32_t mul2(uint32_t a, float b) {
  return each_half([=](int h) { return T(number<T>(a, h) * b).x; });
}

inline float le1(float a, float b) {
  return a <= b ? 1.0f : 0.0f;
}

inline uint32_t expand_sign_bits(uint32_t bytes) {
  return each_half([=](int h) { return -(bytes >> (h == 0 ? 7 : 31) & 1); });
}

} // namespace clampgrad::cuda
