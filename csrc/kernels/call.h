#pragma once
// The arguments of a fused kernel: flat memory, and the call.

#include "base/bits.h"
#include "base/convention.h"
#include "kernels/layout.h"

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/util/bit_cast.h>

#include <array>
#include <type_traits>

namespace clampgrad {

// ---- Calls --------------------------------------------------------------------------------------
// A forward makes a result and bits; a backward makes gradients from a gradient and bits. Where no
// gradient is recorded, the CPU's kernels make values without bits.

struct NumberValues {
  static constexpr int kIn = 1, kOut = 1;
  double lo, hi; // in the dtype; of 16 bits, the pattern: a double holds all exactly
  bool has_lo, has_hi;
};

// Of two or three Tensors, of 16 bits.
template <size_t n>
struct TensorValues {
  static constexpr int kIn = n, kOut = 1;
  PairOperator op; // of two
  bool tie_takes_last; // of +0 and -0, the argument that comes last
};

struct NumberForward : NumberValues {
  Gradient gradient;
};

// Of two or three Tensors.
template <size_t n>
struct TensorForward {
  static constexpr int kIn = n, kOut = 1;
  Gradient gradient;
  int differentiated_mask; // a bit per argument
  PairOperator op = {}; // of two
};

// Of x between numbers, or of two or three Tensors.
template <size_t n>
struct Backward {
  static constexpr int kIn = 1, kOut = n;
  Convention convention;
  PairOperator op = {}; // of two
};

// Whether CUDA's kernels read inputs where they lie; if not, they are flat.
template <typename Call>
constexpr bool accepts_strided_inputs = !std::is_same_v<Call, NumberForward>;

template <typename Call>
constexpr bool is_forward = true;
template <size_t n>
constexpr bool is_forward<Backward<n>> = false;

// For explicit instantiations, which a template cannot make.
#define CLAMPGRAD_FOR_EACH_CALL(_) \
  _(NumberForward)                 \
  _(TensorForward<2>) _(TensorForward<3>) _(Backward<1>) _(Backward<2>) _(Backward<3>)

// Elements that are walked together, n of each, and the bits that belong to them, if any. Lane is
// void where the dtype is known only at run time.
template <typename Call, typename Lane = void>
struct Buffers {
  const Lane* in[Call::kIn];
  int64_t period_words[Call::kIn]; // for the CPU: Note [Repeated inputs]
  Lane* out[Call::kOut]; // null if it is not needed; may be an input
  std::conditional_t<is_forward<Call>, uint64_t, const uint64_t>* bits; // null for values
  int64_t n;
};

// The type that is loaded and stored: 16-bit numbers move as their bits.
template <typename T>
using Lane = std::conditional_t<sizeof(T) == 2, uint16_t, T>;

template <typename Lane, typename Call>
Buffers<Call, Lane> cast_buffers(const Buffers<Call>& memory) {
  return c10::bit_cast<Buffers<Call, Lane>>(memory);
}

namespace cuda {

// A layout for each input, which may be none of the outputs unless it is flat.
template <typename Call>
using Layouts = std::array<Layout, Call::kIn>;

template <typename Call>
void run(c10::Device, at::ScalarType, const Buffers<Call>&, const Layouts<Call>&, const Call&);

} // namespace cuda
} // namespace clampgrad
