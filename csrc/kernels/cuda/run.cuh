#pragma once
// From a call to the kernel with the Op for it.

#include "kernels/constant.h"
#include "kernels/cuda/launch.cuh"

#include <ATen/Dispatch.h>
#include <torch/headeronly/version.h>

#include <cmath>

// clang-format off: each stands on those before it
#define CLAMPGRAD_ISA device
#include "kernels/rules/all.h"
// clang-format on

namespace clampgrad::device {
namespace {

template <typename Lane>
CLAMPGRAD_HOST_DEVICE Lane splat(Lane value) {
  return value;
}

// Up to 2.12 torch.clamp takes max and min on the GPU, which make +0 greater than -0; since then it
// compares, as on the CPU (pytorch/pytorch#185354).
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13
#define CLAMPGRAD_CLAMP clamp_by_sign
template <bool has_lo, bool has_hi, typename V, typename K>
CLAMPGRAD_HOST_DEVICE V
clamp_by_sign(V x, K key, bool comparable, const Bounds<V>& values, const Bounds<K>& keys) {
  if constexpr (std::is_floating_point_v<V>) {
    const V raised = has_lo ? std::fmax(x, values.lo) : x;
    return x == x ? (has_hi ? std::fmin(raised, values.hi) : raised) : x;
  } else { // of two zeros, the signs decide; one select after the other, or there would be branches
    V y = x;
    if constexpr (has_lo) {
      y = select(eq(key, keys.lo), V(y & values.lo), y);
      y = select(lt(key, keys.lo), values.lo, y);
      key = larger(key, keys.lo);
    }
    if constexpr (has_hi) {
      y = select(eq(key, keys.hi), V(y | values.hi), y);
      y = select(lt(keys.hi, key), values.hi, y);
    }
    return select(comparable, y, x);
  }
}
#endif

} // namespace
} // namespace clampgrad::device

// clang-format off
#include "kernels/rules/ops.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/triple.cuh"
// clang-format on
#undef CLAMPGRAD_ISA

namespace clampgrad::cuda {

// Vectors may be used: every pointer that is there is a multiple of 16 bytes.
template <int ins, int outs, typename Lane, typename Word>
bool is_aligned(const Streams<ins, outs, Lane, Word>& s) {
  uintptr_t address = 0;
  for (const void* p : s.in) {
    address |= reinterpret_cast<uintptr_t>(p);
  }
  for (const void* p : s.out) {
    address |= reinterpret_cast<uintptr_t>(p);
  }
  return address % 16 == 0;
}

// Op::E is the element, and its lane what moves: 16-bit numbers travel as their bits.
template <typename Call>
void run(c10::Device device, at::ScalarType dtype, const MemoryOf<Call>& memory, const Call& call) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "clampgrad", [&] {
    using T = Lane<scalar_t>;
    using E = device::ElementHere<scalar_t>;
    constexpr int64_t elements = int64_t{kThreads / kLanes} * Row<T>::kElements; // of a block's row
    const auto s = lanes_of<T>(memory);
    const int rows = rows_for(device, s.n, elements);
    const auto run = [&](auto op) {
      launch(device, s.n, rows * elements, op_kernel<T, decltype(op)>, op, s, is_aligned(s), rows);
    };
    if constexpr (std::is_same_v<Call, TripleEncode>) {
      run(device::LookUpTriple<E>{{}, device::table_of(call)});
    } else {
      device::with_op<E>(call, run);
    }
  });
}

} // namespace clampgrad::cuda
