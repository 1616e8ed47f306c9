#pragma once
// The two 16-bit floating-point formats as plain integers: they compare without a conversion, so
// that a loop over them is a loop over int16_t. Only Gate::half computes with them.

#include "kernels/gate.h"

namespace clampgrad::cpu {

enum class Format { half, bfloat };

template <typename To, typename From>
CLAMPGRAD_HOST_DEVICE To reinterpret(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof(to));
  return to;
}

template <Format format>
struct Float16 {
  uint16_t bits;

  static constexpr int16_t infinity = format == Format::half ? 0x7c00 : 0x7f80;

  Float16() = default;
  CLAMPGRAD_HOST_DEVICE explicit Float16(float value) : bits(round(value)) {}

  // Orders as the numbers do, with -0 equal to +0; beyond +-infinity lie the NaNs.
  CLAMPGRAD_HOST_DEVICE int16_t key() const {
    const auto magnitude = static_cast<int16_t>(bits & 0x7fff);
    return bits & 0x8000 ? static_cast<int16_t>(-magnitude) : magnitude;
  }

  CLAMPGRAD_HOST_DEVICE explicit operator float() const {
    if constexpr (format == Format::bfloat) {
      return reinterpret<float>(static_cast<uint32_t>(bits) << 16);
    } else {
      const uint32_t sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
      // Multiplying by 2^112 moves the exponent, and makes subnormals normal.
      const float scaled = reinterpret<float>(magnitude << 13) * 0x1p112f;
      const uint32_t value =
          magnitude >= 0x7c00u ? (magnitude << 13) | 0x7f800000u : reinterpret<uint32_t>(scaled);
      return reinterpret<float>(sign | value);
    }
  }

 private:
  // To nearest, ties to even.
  CLAMPGRAD_HOST_DEVICE static uint16_t round(float value) {
    const auto word = reinterpret<uint32_t>(value);
    const auto sign = static_cast<uint16_t>(word >> 16 & 0x8000u);
    const uint32_t magnitude = word & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
      return static_cast<uint16_t>(sign | infinity | (infinity >> 1 & 0x0200) | 0x0040);
    }
    if constexpr (format == Format::bfloat) {
      return static_cast<uint16_t>(sign | (magnitude + 0x7fffu + (magnitude >> 16 & 1u)) >> 16);
    } else {
      if (magnitude >= 0x47800000u) { // 2^16 and beyond
        return static_cast<uint16_t>(sign | 0x7c00u);
      }
      if (magnitude < 0x38800000u) { // below the smallest normal: let the addition round
        const float shifted = reinterpret<float>(magnitude) + 0.5f;
        return static_cast<uint16_t>(sign | (reinterpret<uint32_t>(shifted) - 0x3f000000u));
      }
      const uint32_t rebased = magnitude - 0x38000000u;
      return static_cast<uint16_t>(sign | (rebased + 0xfffu + (rebased >> 13 & 1u)) >> 13);
    }
  }
};

template <Format format>
CLAMPGRAD_HOST_DEVICE bool is_number(Float16<format> x) {
  return (x.bits & 0x7fff) <= Float16<format>::infinity;
}
template <Format format>
CLAMPGRAD_HOST_DEVICE bool operator<=(Float16<format> a, Float16<format> b) {
  return is_number(a) & is_number(b) & (a.key() <= b.key());
}
template <Format format>
CLAMPGRAD_HOST_DEVICE bool operator>=(Float16<format> a, Float16<format> b) {
  return b <= a;
}
template <Format format>
CLAMPGRAD_HOST_DEVICE Float16<format> operator*(Float16<format> a, Float16<format> b) {
  return Float16<format>(static_cast<float>(a) * static_cast<float>(b));
}
template <Format format>
CLAMPGRAD_HOST_DEVICE Float16<format> operator/(Float16<format> a, Float16<format> b) {
  return Float16<format>(static_cast<float>(a) / static_cast<float>(b));
}
template <Format format>
CLAMPGRAD_HOST_DEVICE Float16<format> operator-(Float16<format> a) {
  a.bits ^= 0x8000;
  return a;
}

// What a loop compares in place of the value.
template <typename T>
CLAMPGRAD_HOST_DEVICE T key_of(T x) {
  return x;
}
template <Format format>
CLAMPGRAD_HOST_DEVICE int16_t key_of(Float16<format> x) {
  return x.key();
}
template <typename T>
using Key = decltype(key_of(T()));

CLAMPGRAD_HOST_DEVICE bool is_number(float x) {
  return x == x;
}
CLAMPGRAD_HOST_DEVICE bool is_number(double x) {
  return x == x;
}

} // namespace clampgrad::cpu
