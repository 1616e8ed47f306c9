#pragma once
// What both families of kernels need: element types, and the way from a call to its instance.

#include "kernels/backend.h"
#include "kernels/constant.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/dispatch.h"

#include <type_traits>

// clang-format off: each stands on those before it
#define CLAMPGRAD_ISA device
#include "kernels/rules/all.h"
#undef CLAMPGRAD_ISA
// clang-format on

namespace clampgrad::cuda {

using namespace clampgrad::device;

// Vectors may be used: every pointer that is there is a multiple of 16 bytes.
template <typename... Pointers>
bool all_aligned(const Pointers*... p) {
  return ((reinterpret_cast<uintptr_t>(p) % 16 == 0) && ...);
}

template <typename T>
constexpr int64_t kElementsOfBlock = int64_t{kThreads / kLanes} * Tile<T>::kElements;

// Op::E is the element, and its lane what moves: 16-bit numbers travel as their bits.
template <typename Op, typename... Inputs>
void launch_encode(const Flat& flat, Op op, void* y, uint64_t* bits, const Inputs*... in) {
  using T = typename Op::E::Lane;
  const Pointers<const T, Op::kIn> pointers = {{static_cast<const T*>(in)...}};
  launch(
      flat,
      kElementsOfBlock<T>,
      encode_kernel<T, Op>,
      op,
      pointers,
      static_cast<T*>(y),
      reinterpret_cast<uint32_t*>(bits),
      flat.n,
      all_aligned(y, in...));
}

template <typename Op, typename... Outputs>
void launch_decode(const Flat& flat, Op op, const void* g, const uint64_t* bits, Outputs*... out) {
  using T = typename Op::E::Lane;
  const Pointers<T, Op::kOut> pointers = {{static_cast<T*>(out)...}};
  launch(
      flat,
      kElementsOfBlock<T>,
      decode_kernel<T, Op>,
      op,
      static_cast<const T*>(g),
      reinterpret_cast<const uint32_t*>(bits),
      pointers,
      flat.n,
      all_aligned(g, out...));
}

} // namespace clampgrad::cuda
