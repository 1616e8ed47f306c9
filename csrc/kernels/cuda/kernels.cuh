#pragma once
// The two kernels that all operators are instances of: elements in, results and bits out; gradient
// and bits in, gradients out. What they do to one element is an operator's `Op`.

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

// Op::kIn inputs, Op::kPlanes planes of bits; op(values, result) returns the code.
template <bool whole, typename T, typename Op>
__device__ __forceinline__ void encode_part(
    const Op& op, const Part<T>& part, const Pointers<const T, Op::kIn>& in, T* y, uint32_t* bits) {
  Vector<T> values[Op::kIn][kVectors];
#pragma unroll
  for (int k = 0; k < Op::kIn; ++k) {
#pragma unroll
    for (int row = 0; row < kVectors; ++row) {
      load<whole>(in.at[k], part, row, values[k][row]);
    }
  }
  uint32_t planes[Op::kPlanes == 0 ? 1 : Op::kPlanes][kVectors] = {};
#pragma unroll
  for (int row = 0; row < kVectors; ++row) {
    Vector<T> result;
#pragma unroll
    for (int i = 0; i < Tile<T>::kVector; ++i) {
      T element[Op::kIn];
#pragma unroll
      for (int k = 0; k < Op::kIn; ++k) {
        element[k] = values[k][row].values[i];
      }
      const uint32_t code = op(element, result.values[i]);
#pragma unroll
      for (int p = 0; p < Op::kPlanes; ++p) {
        planes[p][row] |= (code >> p & 1u) << i;
      }
    }
    store<whole>(y, part, row, result);
  }
#pragma unroll
  for (int p = 0; p < Op::kPlanes; ++p) {
    if constexpr (!whole) { // bits of no element are 0
#pragma unroll
      for (int row = 0; row < kVectors; ++row) {
        planes[p][row] &= (1u << part.count(row)) - 1;
      }
    }
    store_bits(bits + p * words32(part.n), part, planes[p]);
  }
}

// Op::kOut gradients, of which the null ones are not wanted; op(g, code, gradients).
template <bool whole, typename T, typename Op>
__device__ __forceinline__ void decode_part(
    const Op& op,
    const Part<T>& part,
    const T* g,
    const uint32_t* bits,
    const Pointers<T, Op::kOut>& out) {
  uint32_t loaded[Op::kPlanes];
#pragma unroll
  for (int p = 0; p < Op::kPlanes; ++p) {
    loaded[p] = load_bits(bits + p * words32(part.n), part);
  }
  Vector<T> values[kVectors];
#pragma unroll
  for (int row = 0; row < kVectors; ++row) {
    load<whole>(g, part, row, values[row]);
  }
#pragma unroll
  for (int row = 0; row < kVectors; ++row) {
    uint32_t planes[Op::kPlanes];
#pragma unroll
    for (int p = 0; p < Op::kPlanes; ++p) {
      planes[p] = take_bits(loaded[p], part, row);
    }
    Vector<T> results[Op::kOut];
#pragma unroll
    for (int i = 0; i < Tile<T>::kVector; ++i) {
      int code = 0;
#pragma unroll
      for (int p = 0; p < Op::kPlanes; ++p) {
        code |= static_cast<int>(planes[p] >> i & 1u) << p;
      }
      T element[Op::kOut];
      op(values[row].values[i], code, element);
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
}

// The result may be one of the inputs. All branches are taken by a warp as one.
template <typename T, typename Op>
__global__ void __launch_bounds__(kThreads) encode_kernel(
    Op op, Pointers<const T, Op::kIn> in, T* y, uint32_t* bits, int64_t n, bool aligned) {
  const auto part = part_of_thread<T>(n);
  if (aligned && part.is_whole()) {
    encode_part<true>(op, part, in, y, bits);
  } else if (part.exists()) {
    encode_part<false>(op, part, in, y, bits);
  }
}

template <typename T, typename Op>
__global__ void __launch_bounds__(kThreads) decode_kernel(
    Op op, const T* g, const uint32_t* bits, Pointers<T, Op::kOut> out, int64_t n, bool aligned) {
  const auto part = part_of_thread<T>(n);
  if (aligned && part.is_whole()) {
    decode_part<true>(op, part, g, bits, out);
  } else if (part.exists()) {
    decode_part<false>(op, part, g, bits, out);
  }
}

} // namespace clampgrad::cuda
