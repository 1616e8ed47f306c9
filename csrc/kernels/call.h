#pragma once
// What a fused kernel is called with: flat memory, and what to do there.

#include "base/bits.h"
#include "base/convention.h"

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/util/bit_cast.h>

#include <type_traits>

namespace clampgrad {

// ---- What to do ---------------------------------------------------------------------------------
// A forward makes a result and bits from elements; a backward makes gradients from a gradient and
// bits.

struct NumberForward {
  static constexpr int kIn = 1, kOut = 1;
  using Word = uint64_t;
  double lo, hi; // in the dtype; of 16 bits, the pattern: a double holds all exactly
  bool has_lo, has_hi;
  Convention convention;
};

struct NumberBackward {
  static constexpr int kIn = 1, kOut = 1;
  using Word = const uint64_t;
  Convention convention;
};

struct PairForward {
  static constexpr int kIn = 2, kOut = 1;
  using Word = uint64_t;
  Extremum op;
  Gradient gradient;
  int differentiated; // a bit per argument
};

struct PairBackward {
  static constexpr int kIn = 1, kOut = 2;
  using Word = const uint64_t;
  Extremum op;
  Convention convention;
};

struct TripleForward {
  static constexpr int kIn = 3, kOut = 1;
  using Word = uint64_t;
  Gradient gradient;
  int differentiated;
};

struct TripleBackward {
  static constexpr int kIn = 1, kOut = 3;
  using Word = const uint64_t;
  Convention convention;
};

template <typename Call>
constexpr bool is_forward = !std::is_const_v<typename Call::Word>;

// For explicit instantiations, which a template cannot make.
#define CLAMPGRAD_FOR_EACH_CALL(_) \
  _(NumberForward)                 \
  _(NumberBackward) _(PairForward) _(PairBackward) _(TripleForward) _(TripleBackward)

// Elements that are walked together, n of each, and the bits that belong to them. Lane is void
// where the dtype is known only at run time.
template <typename Call, typename Lane = void>
struct Buffers {
  const Lane* in[Call::kIn];
  int64_t period[Call::kIn]; // in words: Note [Repeated inputs]
  Lane* out[Call::kOut]; // null if it is not wanted; may be an input
  typename Call::Word* bits;
  int64_t n;
};

// The type that is loaded and stored: 16-bit numbers move as their bits.
template <typename T>
using Lane = std::conditional_t<sizeof(T) == 2, uint16_t, T>;

template <typename Lane, typename Call>
Buffers<Call, Lane> lanes_of(const Buffers<Call>& memory) {
  return c10::bit_cast<Buffers<Call, Lane>>(memory);
}

namespace cuda {

template <typename Call>
void run(c10::Device, at::ScalarType, const Buffers<Call>&, const Call&);

} // namespace cuda
} // namespace clampgrad
