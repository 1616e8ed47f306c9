#pragma once
// The kernel that all operators are instances of: elements and bits in, elements or bits out. What
// it does to one element is an Op (kernels/rules/ops.h).

#include "kernels/call.h"
#include "kernels/cuda/tile.cuh"

namespace clampgrad::cuda {

// A lane's words of the bits: those that were read, or those to be written.
template <typename Op>
using Planes = uint32_t[Op::kPlanes];

// A word of 64 is two of 32: the machine is little endian.
template <typename Op, typename T>
__device__ __forceinline__ void load_bits(
    const MemoryOf<typename Op::Call, T>& s, bool has_word, int64_t word, Planes<Op>& to) {
#pragma unroll
  for (int p = 0; p < Op::kPlanes; ++p) {
    to[p] = has_word ? reinterpret_cast<const uint32_t*>(s.bits + p * words(s.n))[word] : 0;
  }
}
template <typename Op, typename T>
__device__ __forceinline__ void store_bits(
    const MemoryOf<typename Op::Call, T>& s, bool has_word, int64_t word, const Planes<Op>& from) {
#pragma unroll
  for (int p = 0; p < Op::kPlanes; ++p) {
    if (has_word) {
      reinterpret_cast<uint32_t*>(s.bits + p * words(s.n))[word] = from[p];
    }
  }
}

// What is recorded: a comparison's result, or what a table says.
template <typename Op>
using Bit = std::conditional_t<std::is_same_v<typename Op::Call, TripleEncode>, uint32_t, bool>;

template <int rows, typename T, typename Op>
__device__ __forceinline__ void run_row(
    const Op& op,
    const MemoryOf<typename Op::Call, T>& s,
    const Tile<T, rows>& tile,
    int row,
    const Vector<T> (&in)[Op::Call::kIn],
    Planes<Op>& kept) {
  using Call = typename Op::Call;
  Vector<T> out[Call::kOut];
  Planes<Op> bits = {};
  if constexpr (!encodes<Call>) {
#pragma unroll
    for (int p = 0; p < Op::kPlanes; ++p) {
      bits[p] = tile.take_bits(kept[p], row);
    }
  }
#pragma unroll
  for (int i = 0; i < Row<T>::kVector; ++i) {
    T from[Call::kIn], to[Call::kOut];
    Bit<Op> recorded[Op::kPlanes];
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
      tile.store(s.out[k], row, out[k]);
    }
  }
  if constexpr (encodes<Call>) {
#pragma unroll
    for (int p = 0; p < Op::kPlanes; ++p) {
      tile.gather_bits(bits[p], row, kept[p]);
    }
  }
}

// A whole tile of aligned memory, with all loads in flight at once.
template <int rows, typename T, typename Op>
__device__ __forceinline__ void run_rows(
    const Op& op, const MemoryOf<typename Op::Call, T>& s, int64_t first) {
  using Call = typename Op::Call;
  const Tile<T, rows> tile = {first};
  Planes<Op> kept = {};
  if constexpr (!encodes<Call>) {
    load_bits<Op>(s, tile.has_word(), tile.word(), kept);
  }
  Vector<T> in[rows][Call::kIn];
#pragma unroll
  for (int row = 0; row < rows; ++row) {
#pragma unroll
    for (int k = 0; k < Call::kIn; ++k) {
      tile.load(s.in[k], row, in[row][k]);
    }
  }
#pragma unroll
  for (int row = 0; row < rows; ++row) {
    run_row(op, s, tile, row, in[row], kept);
  }
  if constexpr (encodes<Call>) {
    store_bits<Op>(s, tile.has_word(), tile.word(), kept);
  }
}

// Any other tile. Neighbouring lanes take neighbouring elements, so that an access of a warp is one
// stretch of memory here too. 32 elements have a word of bits, which one lane after the other
// keeps.
template <typename T, typename Op>
__device__ __forceinline__ void run_elements(
    const Op& op, const MemoryOf<typename Op::Call, T>& s, int64_t first, int64_t end) {
  using Call = typename Op::Call;
  constexpr int kBatch = 4; // loads in flight
  const int lane = threadIdx.x % kLanes;
  const int64_t word = first / 32 + lane;
  const bool has_word = word < 2 * words(end);
  Planes<Op> kept = {};
  if constexpr (!encodes<Call>) {
    load_bits<Op>(s, has_word, word, kept);
  }
#pragma unroll 1
  for (int w = 0; first + 32 * w < end; w += kBatch) {
    const int64_t begin = first + 32 * w + lane;
    T in[kBatch][Call::kIn], out[Call::kOut];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
#pragma unroll
      for (int k = 0; k < Call::kIn; ++k) {
        in[b][k] = begin + 32 * b < end ? s.in[k][begin + 32 * b] : T(0);
      }
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int64_t i = begin + 32 * b;
      Bit<Op> recorded[Op::kPlanes];
#pragma unroll
      for (int p = 0; p < Op::kPlanes; ++p) {
        recorded[p] = !encodes<Call> && (__shfl_sync(~0u, kept[p], w + b) >> lane & 1u) != 0;
      }
      op(in[b], recorded, out);
#pragma unroll
      for (int k = 0; k < Call::kOut; ++k) {
        if (i < end && (Call::kOut == 1 || s.out[k])) {
          s.out[k][i] = out[k];
        }
      }
      if constexpr (encodes<Call>) {
#pragma unroll
        for (int p = 0; p < Op::kPlanes; ++p) { // bits of no element are 0
          const uint32_t all = __ballot_sync(~0u, i < end && recorded[p]);
          kept[p] = lane == w + b ? all : kept[p];
        }
      }
    }
  }
  if constexpr (encodes<Call>) {
    store_bits<Op>(s, has_word, word, kept);
  }
}

// All branches are taken by a warp as one, which the compiler sees where the number of the warp
// comes out of a shuffle. Encoding needs that: the many shuffles otherwise get code for lanes that
// have parted, which spills. Decoding, it would mix the rows of a tile and run out of predicates. A
// result may be one of the inputs. `rows` of a tile: 1 or kRows.
template <typename T, typename Op>
__global__ void __launch_bounds__(kThreads)
    op_kernel(Op op, MemoryOf<typename Op::Call, T> s, bool aligned, int rows) {
  int warp = threadIdx.x / kLanes;
  if constexpr (encodes<typename Op::Call>) {
    warp = __shfl_sync(~0u, warp, 0);
  }
  const int64_t tile = rows * Row<T>::kElements;
  const int64_t first = (int64_t{blockIdx.x} * (kThreads / kLanes) + warp) * tile;
  const int64_t end = first + tile;
  if (first >= s.n) {
    return;
  }
  if (!aligned || end > s.n) {
    run_elements(op, s, first, end < s.n ? end : s.n);
  } else if (rows == kRows) {
    run_rows<kRows>(op, s, first);
  } else {
    run_rows<1>(op, s, first);
  }
}

} // namespace clampgrad::cuda
