#pragma once
// How a warp works through flat memory.
//
// A warp owns a tile: up to kRows rows, a row being a vector of 16 bytes for each lane. So every
// access of a warp is one stretch of memory, and several loads are in flight before the first is
// used. The bits of a tile are whole words of 32, which the lanes exchange by shuffles; each bit of
// an element costs a warp one load or store. A small tensor has tiles of one row, so that more
// warps work.
//
// A lane has the bits of its part of a tile in one register, a byte for each row. Lanes that share
// a word hold parts of the words of all rows, and need the whole word of one: they transpose bytes.

#include "base/bits.h"
#include "kernels/cuda/memory.cuh"

#include <cstring>

namespace clampgrad::cuda {

constexpr int kThreads = 256; // of a block
constexpr int kWarpSize = 32;
constexpr int kRows = 4; // one for each byte of a register

template <typename T>
struct Row {
  static constexpr int kVector = 16 / sizeof(T); // elements
  static constexpr int kElements = kWarpSize * kVector;
  // Lanes whose bits of one row make a byte, and a word of 32.
  static constexpr int kLanesPerByte = 8 / kVector, kLanesPerWord = 4 * kLanesPerByte;
  static_assert(kElements % kElementsPerWord == 0);
};

template <typename T>
struct alignas(16) Vector {
  T values[Row<T>::kVector];
};

// The lane's part of a whole tile, which begins at an element.
template <typename T, int rows>
struct Tile {
  using RowType = Row<T>;
  int64_t first;
  int lane = threadIdx.x % kWarpSize;
  int place = lane % RowType::kLanesPerWord; // among those that share a word
  int byte = place / RowType::kLanesPerByte; // of this word, to which the lane's bits belong

  __device__ __forceinline__ int64_t at(int row) const {
    return first + row * RowType::kElements + lane * RowType::kVector;
  }
  // The number of the lane's vector, in memory of less than 2^31 elements.
  __device__ __forceinline__ uint32_t vector(int row) const {
    return static_cast<uint32_t>(static_cast<uint64_t>(first) / RowType::kVector) +
        row * kWarpSize + lane;
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

  // The 32-bit word that this lane loads or stores. Of the lanes whose bits make one word, the
  // first lane for byte r handles the word of row r.
  __device__ __forceinline__ bool has_word() const {
    return place % RowType::kLanesPerByte == 0 && byte < rows;
  }
  __device__ __forceinline__ int64_t word() const {
    return static_cast<int64_t>(static_cast<uint64_t>(first) / 32) + byte * RowType::kVector +
        lane / RowType::kLanesPerWord;
  }
  // From a byte for each row, of which this lane fills the first kVector bits, to the word that it
  // writes. All lanes of a warp call this function and the next.
  __device__ __forceinline__ uint32_t gather_bits(uint32_t bits) const {
    constexpr uint32_t kOfLane = 0x1010101u * ((1u << RowType::kVector) - 1);
    uint32_t bytes = (bits & kOfLane) << (place % RowType::kLanesPerByte * RowType::kVector);
#pragma unroll
    for (int step = 1; step < RowType::kLanesPerByte; step *= 2) {
      bytes |= __shfl_xor_sync(~0u, bytes, step);
    }
    const uint32_t next = __shfl_xor_sync(~0u, bytes, RowType::kLanesPerByte);
    bytes = __byte_perm(bytes, next, byte % 2 == 0 ? 0x6240 : 0x3715);
    const uint32_t after = __shfl_xor_sync(~0u, bytes, 2 * RowType::kLanesPerByte);
    return __byte_perm(bytes, after, byte < 2 ? 0x5410 : 0x3276);
  }
  // Returns this lane's part of the words that were read.
  __device__ __forceinline__ uint32_t scatter_bits(uint32_t read, int row) const {
    const uint32_t word = __shfl_sync(~0u, read, lane - place + row * RowType::kLanesPerByte);
    return word >> (place * RowType::kVector) & ((1u << RowType::kVector) - 1);
  }
};

} // namespace clampgrad::cuda
