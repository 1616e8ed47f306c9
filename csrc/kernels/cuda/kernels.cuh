#pragma once
// The kernel that all operators are instances of: elements and bits in, elements or bits out. What
// it does to one element is an Op (kernels/rules/ops.h).

#include "kernels/call.h"
#include "kernels/cuda/tile.cuh"

namespace clampgrad::cuda {

template <typename Op>
using Planes = uint32_t[Op::kPlanes];
// One vector of each input.
template <typename Op, typename T>
using Inputs = Vector<T>[Op::Call::kIn];

template <bool whole, typename T, typename Op>
__device__ __forceinline__ void load_row(
    const MemoryOf<typename Op::Call, T>& s, const Part<T>& part, int row, Inputs<Op, T>& to) {
#pragma unroll
  for (int k = 0; k < Op::Call::kIn; ++k) {
    load<whole>(s.in[k], part, row, to[k]);
  }
}

// `kept` has the lane's words of the bits: those that were read, or those to be written.
template <bool whole, typename T, typename Op>
__device__ __forceinline__ void run_row(
    const Op& op,
    const MemoryOf<typename Op::Call, T>& s,
    const Part<T>& part,
    int row,
    const Inputs<Op, T>& in,
    Planes<Op>& kept) {
  using Call = typename Op::Call;
  Vector<T> out[Call::kOut];
  Planes<Op> bits = {};
  if constexpr (!encodes<Call>) {
#pragma unroll
    for (int p = 0; p < Op::kPlanes; ++p) {
      bits[p] = take_bits(kept[p], part, row);
    }
  }
#pragma unroll
  for (int i = 0; i < Tile<T>::kVector; ++i) {
    T from[Call::kIn], to[Call::kOut];
    bool recorded[Op::kPlanes];
#pragma unroll
    for (int k = 0; k < Call::kIn; ++k) {
      from[k] = in[k].values[i];
    }
#pragma unroll
    for (int p = 0; p < Op::kPlanes; ++p) {
      recorded[p] = (bits[p] >> i & 1u) != 0;
    }
    op(from, recorded, to);
    if constexpr (encodes<Call>) {
#pragma unroll
      for (int p = 0; p < Op::kPlanes; ++p) {
        bits[p] |= static_cast<uint32_t>(recorded[p]) << i;
      }
    }
#pragma unroll
    for (int k = 0; k < Call::kOut; ++k) {
      out[k].values[i] = to[k];
    }
  }
#pragma unroll
  for (int k = 0; k < Call::kOut; ++k) {
    if (Call::kOut == 1 || s.out[k]) {
      store<whole>(s.out[k], part, row, out[k]);
    }
  }
  if constexpr (encodes<Call>) {
#pragma unroll
    for (int p = 0; p < Op::kPlanes; ++p) {
      if constexpr (!whole) { // bits of no element are 0
        bits[p] &= (1u << part.count(row)) - 1;
      }
      gather_bits(bits[p], part, row, kept[p]);
    }
  }
}

// All branches are taken by a warp as one: whole tiles with all loads in flight at once, others row
// after row. A result may be one of the inputs.
template <typename T, typename Op>
__global__ void __launch_bounds__(kThreads)
    op_kernel(Op op, MemoryOf<typename Op::Call, T> s, bool aligned) {
  const Part<T> part(s.n);
  if (!part.exists()) {
    return;
  }
  Planes<Op> bits = {};
  if constexpr (!encodes<typename Op::Call>) {
#pragma unroll
    for (int p = 0; p < Op::kPlanes; ++p) {
      bits[p] = load_bits(s.bits + p * words(s.n), part);
    }
  }
  if (aligned && part.is_whole()) {
    Inputs<Op, T> rows[kVectors];
#pragma unroll
    for (int row = 0; row < kVectors; ++row) {
      load_row<true, T, Op>(s, part, row, rows[row]);
    }
#pragma unroll
    for (int row = 0; row < kVectors; ++row) {
      run_row<true>(op, s, part, row, rows[row], bits);
    }
  } else {
#pragma unroll 1
    for (int row = 0; row < kVectors; ++row) {
      Inputs<Op, T> in;
      load_row<false, T, Op>(s, part, row, in);
      run_row<false>(op, s, part, row, in, bits);
    }
  }
  if constexpr (encodes<typename Op::Call>) {
#pragma unroll
    for (int p = 0; p < Op::kPlanes; ++p) {
      store_bits(s.bits + p * words(s.n), part, bits[p]);
    }
  }
}

} // namespace clampgrad::cuda
