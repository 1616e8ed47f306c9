#pragma once
// The two kernels that all operators are instances of: elements in, results and bits out; gradient
// and bits in, gradients out. What they do to one element is an Op (kernels/rules/ops.h).

#include "kernels/cuda/tile.cuh"

namespace clampgrad::cuda {

constexpr int kThreads = 256;

template <typename T>
__device__ __forceinline__ Part<T> part_of_thread(int64_t n) {
  const int64_t tile = int64_t{blockIdx.x} * (kThreads / kLanes) + threadIdx.x / kLanes;
  return {static_cast<int>(threadIdx.x % kLanes), tile, n};
}

template <typename T, int count>
struct Pointers {
  T* at[count];
};

// Op::kIn inputs, Op::kPlanes planes of bits.
template <typename Op, typename T>
using Inputs = Vector<T>[Op::kIn];
template <typename Op>
using Planes = uint32_t[Op::kPlanes];

template <bool whole, typename T, typename Op>
__device__ __forceinline__ void encode_row(
    const Op& op, const Part<T>& part, int row, const Inputs<Op, T>& in, T* y, Planes<Op>& kept) {
  Vector<T> result;
  Planes<Op> bits = {};
#pragma unroll
  for (int i = 0; i < Tile<T>::kVector; ++i) {
    T element[Op::kIn];
#pragma unroll
    for (int k = 0; k < Op::kIn; ++k) {
      element[k] = in[k].values[i];
    }
    bool recorded[Op::kPlanes];
    op(element, result.values[i], recorded);
#pragma unroll
    for (int p = 0; p < Op::kPlanes; ++p) {
      bits[p] |= static_cast<uint32_t>(recorded[p]) << i;
    }
  }
  store<whole>(y, part, row, result);
#pragma unroll
  for (int p = 0; p < Op::kPlanes; ++p) {
    if constexpr (!whole) { // bits of no element are 0
      bits[p] &= (1u << part.count(row)) - 1;
    }
    gather_bits(bits[p], part, row, kept[p]);
  }
}

// Op::kOut gradients, of which the null ones are not wanted.
template <bool whole, typename T, typename Op>
__device__ __forceinline__ void decode_row(
    const Op& op,
    const Part<T>& part,
    int row,
    const Vector<T>& g,
    const Planes<Op>& loaded,
    const Pointers<T, Op::kOut>& out) {
  Planes<Op> bits;
#pragma unroll
  for (int p = 0; p < Op::kPlanes; ++p) {
    bits[p] = take_bits(loaded[p], part, row);
  }
  Vector<T> results[Op::kOut];
#pragma unroll
  for (int i = 0; i < Tile<T>::kVector; ++i) {
    bool recorded[Op::kPlanes];
#pragma unroll
    for (int p = 0; p < Op::kPlanes; ++p) {
      recorded[p] = (bits[p] >> i & 1u) != 0;
    }
    T element[Op::kOut];
    op(g.values[i], recorded, element);
#pragma unroll
    for (int k = 0; k < Op::kOut; ++k) {
      results[k].values[i] = element[k];
    }
  }
#pragma unroll
  for (int k = 0; k < Op::kOut; ++k) {
    if (Op::kOut == 1 || out.at[k]) {
      store<whole>(out.at[k], part, row, results[k]);
    }
  }
}

template <bool whole, typename T, typename Op>
__device__ __forceinline__ void load_row(
    const Pointers<const T, Op::kIn>& from, const Part<T>& part, int row, Inputs<Op, T>& to) {
#pragma unroll
  for (int k = 0; k < Op::kIn; ++k) {
    load<whole>(from.at[k], part, row, to[k]);
  }
}

// All branches are taken by a warp as one: whole tiles with all loads in flight at once, others row
// after row. The result may be one of the inputs.
template <typename T, typename Op>
__global__ void __launch_bounds__(kThreads) encode_kernel(
    Op op, Pointers<const T, Op::kIn> in, T* y, uint32_t* bits, int64_t n, bool aligned) {
  const auto part = part_of_thread<T>(n);
  if (!part.exists()) {
    return;
  }
  Planes<Op> kept = {};
  if (aligned && part.is_whole()) {
    Inputs<Op, T> rows[kVectors];
#pragma unroll
    for (int row = 0; row < kVectors; ++row) {
      load_row<true, T, Op>(in, part, row, rows[row]);
    }
#pragma unroll
    for (int row = 0; row < kVectors; ++row) {
      encode_row<true>(op, part, row, rows[row], y, kept);
    }
  } else {
#pragma unroll 1
    for (int row = 0; row < kVectors; ++row) {
      Inputs<Op, T> values;
      load_row<false, T, Op>(in, part, row, values);
      encode_row<false>(op, part, row, values, y, kept);
    }
  }
#pragma unroll
  for (int p = 0; p < Op::kPlanes; ++p) {
    store_bits(bits + p * words32(n), part, kept[p]);
  }
}

template <typename T, typename Op>
__global__ void __launch_bounds__(kThreads) decode_kernel(
    Op op, const T* g, const uint32_t* bits, Pointers<T, Op::kOut> out, int64_t n, bool aligned) {
  const auto part = part_of_thread<T>(n);
  if (!part.exists()) {
    return;
  }
  Planes<Op> loaded;
#pragma unroll
  for (int p = 0; p < Op::kPlanes; ++p) {
    loaded[p] = load_bits(bits + p * words32(n), part);
  }
  if (aligned && part.is_whole()) {
    Vector<T> rows[kVectors];
#pragma unroll
    for (int row = 0; row < kVectors; ++row) {
      load<true>(g, part, row, rows[row]);
    }
#pragma unroll
    for (int row = 0; row < kVectors; ++row) {
      decode_row<true>(op, part, row, rows[row], loaded, out);
    }
  } else {
#pragma unroll 1
    for (int row = 0; row < kVectors; ++row) {
      Vector<T> values;
      load<false>(g, part, row, values);
      decode_row<false>(op, part, row, values, loaded, out);
    }
  }
}

} // namespace clampgrad::cuda
