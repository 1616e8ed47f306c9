#pragma once
// How a warp works through flat memory.
//
// A warp owns a tile: up to kRows rows, a row being a vector of 16 bytes for each lane. So every
// access of a warp is one stretch of memory, and several loads are in flight before the first is
// used. The bits of a tile are whole words of 32, which the lanes gather by shuffles; each bit of
// an element costs a warp one load or store. A small tensor has tiles of one row, so that more
// warps work.

#include "base/bits.h"
#include "kernels/cuda/memory.cuh"

#include <cstring>

namespace clampgrad::cuda {

constexpr int kThreads = 256; // of a block
constexpr int kLanes = 32;
constexpr int kRows = 4;

template <typename T>
struct Row {
  static constexpr int kVector = 16 / sizeof(T); // elements
  static constexpr int kElements = kLanes * kVector;
  // Lanes whose bits of one row make a word of 32.
  static constexpr int kSharers = 32 / kVector;
  static_assert(kElements % kWord == 0 && kSharers >= kRows);
};

template <typename T>
struct alignas(16) Vector {
  T values[Row<T>::kVector];
};

// The lane's part of a whole tile, which begins at an element.
template <typename T, int rows>
struct Tile {
  using Of = Row<T>;
  int64_t first;
  int lane = threadIdx.x % kLanes;
  int place = lane % Of::kSharers; // among those that share a word

  __device__ __forceinline__ int64_t at(int row) const {
    return first + row * Of::kElements + lane * Of::kVector;
  }
  __device__ __forceinline__ void load(const T* from, int row, Vector<T>& to) const {
    const uint4 words = load128(from + at(row));
    std::memcpy(&to, &words, sizeof(to));
  }
  __device__ __forceinline__ void store(T* to, int row, const Vector<T>& from) const {
    uint4 words;
    std::memcpy(&words, &from, sizeof(words));
    store128(to + at(row), words);
  }

  // The 32 bits that this lane reads or writes: the r-th of those that share a word has row r's.
  __device__ __forceinline__ bool has_word() const {
    return place < rows;
  }
  __device__ __forceinline__ int64_t word() const {
    return first / 32 + place * Of::kVector + lane / Of::kSharers;
  }
  // Puts the bits of the lanes together, lowest first. The lane that stores the word of this row
  // keeps it. All lanes of a warp call this function and the next.
  __device__ __forceinline__ void gather_bits(uint32_t bits, int row, uint32_t& kept) const {
    uint32_t word = bits << (place * Of::kVector);
#pragma unroll
    for (int step = 1; step < Of::kSharers; step *= 2) {
      word |= __shfl_xor_sync(~0u, word, step);
    }
    kept = place == row ? word : kept;
  }
  // Gives every lane its own part of the words that were read.
  __device__ __forceinline__ uint32_t take_bits(uint32_t read, int row) const {
    const uint32_t word = __shfl_sync(~0u, read, lane - place + row);
    return word >> (place * Of::kVector) & ((1u << Of::kVector) - 1);
  }
};

} // namespace clampgrad::cuda
