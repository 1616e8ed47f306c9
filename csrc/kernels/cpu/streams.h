#pragma once
// What a loop walks over, and its element types.

#include "base/bits.h"

#include <type_traits>

namespace clampgrad {

// Flat memory of n elements each, walked together, and the bits that belong to them.
template <int ins, int outs, typename Lane, typename Word>
struct Streams {
  static constexpr int kIn = ins, kOut = outs;
  const Lane* in[ins];
  int64_t period[ins]; // in words
  Lane* out[outs]; // null where nobody wants it
  Word* bits;
  int64_t n;
};
// What a forward walks over, and what a backward does.
template <int ins, typename Lane>
using Encoded = Streams<ins, 1, Lane, uint64_t>;
template <int outs, typename Lane>
using Decoded = Streams<1, outs, Lane, const uint64_t>;

// What the loops move per element: 16-bit numbers as their bits.
template <typename T>
using Lane = std::conditional_t<sizeof(T) == 2, uint16_t, T>;

} // namespace clampgrad
