#pragma once
// From a call to a kernel with the Op for it.

#include "kernels/backend.h"
#include "kernels/constant.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/dispatch.h"

#include <type_traits>

// clang-format off: each stands on those before it
#define CLAMPGRAD_ISA device
#include "kernels/rules/all.h"
#include "kernels/rules/ops.h"
#undef CLAMPGRAD_ISA
// clang-format on

namespace clampgrad::cuda {

using namespace clampgrad::device;

// Vectors may be used: every pointer that is there is a multiple of 16 bytes.
template <int ins, int outs, typename Word>
bool is_aligned(const Memory<ins, outs, Word>& m) {
  uintptr_t address = 0;
  for (const void* p : m.in) {
    address |= reinterpret_cast<uintptr_t>(p);
  }
  for (const void* p : m.out) {
    address |= reinterpret_cast<uintptr_t>(p);
  }
  return address % 16 == 0;
}

template <typename To, typename From, int count>
Pointers<To, count> pointers(From* const (&from)[count]) {
  Pointers<To, count> to;
  for (int k = 0; k < count; ++k) {
    to.at[k] = static_cast<To*>(from[k]);
  }
  return to;
}

template <typename T>
constexpr int64_t kElementsOfBlock = int64_t{kThreads / kLanes} * Tile<T>::kElements;

// Op::E is the element, and its lane what moves: 16-bit numbers travel as their bits.
template <typename Op>
void launch_encode(const Forward<Op::kIn>& m, Op op) {
  using T = typename Op::E::Lane;
  launch(
      m.device,
      m.n,
      kElementsOfBlock<T>,
      encode_kernel<T, Op>,
      op,
      pointers<const T>(m.in),
      static_cast<T*>(m.out[0]),
      reinterpret_cast<uint32_t*>(m.bits),
      m.n,
      is_aligned(m));
}

template <typename Op>
void launch_decode(const Backward<Op::kOut>& m, Op op) {
  using T = typename Op::E::Lane;
  launch(
      m.device,
      m.n,
      kElementsOfBlock<T>,
      decode_kernel<T, Op>,
      op,
      static_cast<const T*>(m.in[0]),
      reinterpret_cast<const uint32_t*>(m.bits),
      pointers<T>(m.out),
      m.n,
      is_aligned(m));
}

} // namespace clampgrad::cuda
