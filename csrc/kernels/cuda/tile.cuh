#pragma once
// How a warp works through flat memory.
//
// A warp owns a tile: kVectors rows, a row being a vector of 16 bytes for each lane. So every
// access of a warp is one stretch of memory, and several loads are in flight before the first is
// used. The bits of a tile are whole words of 32; the lanes gather them by shuffles, and a plane
// costs one load or store a warp.

#include "base/bits.h"
#include "kernels/cuda/memory.cuh"

#include <cstdint>
#include <cstring>

namespace clampgrad::cuda {

constexpr int kThreads = 256; // of a block
constexpr int kLanes = 32;
constexpr int kVectors = 4; // a lane's

template <typename T>
struct Tile {
  static constexpr int kVector = 16 / sizeof(T); // elements
  static constexpr int kRow = kLanes * kVector;
  static constexpr int kElements = kVectors * kRow;
  // Lanes whose bits of one row make a word of 32.
  static constexpr int kSharers = 32 / kVector;
  static_assert(kElements % kWord == 0 && kSharers >= kVectors);
};

// The lane's part of a tile that lies in n elements: where it begins, and what of it is there.
template <typename T>
struct Part {
  using tile = Tile<T>;
  int lane;
  int64_t number; // of the tile
  int64_t n;

  __device__ __forceinline__ explicit Part(int64_t n)
      : lane(threadIdx.x % kLanes),
        number(int64_t{blockIdx.x} * (kThreads / kLanes) + threadIdx.x / kLanes),
        n(n) {}

  CLAMPGRAD_HOST_DEVICE int64_t first(int row) const {
    return number * tile::kElements + row * tile::kRow + lane * tile::kVector;
  }
  // How many elements of the vector in this row exist.
  CLAMPGRAD_HOST_DEVICE int count(int row) const {
    const int64_t left = n - first(row);
    return left >= tile::kVector ? tile::kVector : left > 0 ? static_cast<int>(left) : 0;
  }
  CLAMPGRAD_HOST_DEVICE bool exists() const {
    return number * tile::kElements < n;
  }
  CLAMPGRAD_HOST_DEVICE bool is_whole() const {
    return (number + 1) * tile::kElements <= n;
  }

  // The word of 32 bits that this lane reads or writes, -1 for none: lane r of those that share
  // word after word in every row has that of row r. A word of 64 is two, the machine is little
  // endian.
  CLAMPGRAD_HOST_DEVICE int64_t word() const {
    const int row = lane % tile::kSharers;
    const int64_t word =
        number * (tile::kElements / 32) + row * tile::kVector + lane / tile::kSharers;
    return row < kVectors && word < 2 * words(n) ? word : -1;
  }
};

template <typename T>
struct alignas(16) Vector {
  T values[Tile<T>::kVector];
};

// A whole tile of aligned memory is loaded and stored 128 bits at a time; elsewhere elements are
// moved one by one, and those beyond the end read as 0.
template <bool whole, typename T>
__device__ __forceinline__ void load(const T* from, const Part<T>& part, int row, Vector<T>& to) {
  const T* p = from + part.first(row);
  if constexpr (whole) {
    const uint4 words = load128(p);
    std::memcpy(&to, &words, sizeof(to));
  } else {
    const int count = part.count(row);
#pragma unroll
    for (int i = 0; i < Tile<T>::kVector; ++i) {
      to.values[i] = i < count ? p[i] : T(0);
    }
  }
}

template <bool whole, typename T>
__device__ __forceinline__ void store(T* to, const Part<T>& part, int row, const Vector<T>& from) {
  T* p = to + part.first(row);
  if constexpr (whole) {
    uint4 words;
    std::memcpy(&words, &from, sizeof(words));
    store128(p, words);
  } else {
    const int count = part.count(row);
#pragma unroll
    for (int i = 0; i < Tile<T>::kVector; ++i) {
      if (i < count) {
        p[i] = from.values[i];
      }
    }
  }
}

// ---- Bits --------------------------------------------------------------------------------------

// The lanes of a row put their bits of a vector together, lowest first; each that stores the word
// of this row keeps it. All lanes of a warp call these.
template <typename T>
__device__ __forceinline__ void gather_bits(
    uint32_t bits, const Part<T>& part, int row, uint32_t& kept) {
  using tile = Tile<T>;
  const int place = part.lane % tile::kSharers;
  uint32_t word = bits << (place * tile::kVector);
#pragma unroll
  for (int step = 1; step < tile::kSharers; step *= 2) {
    word |= __shfl_xor_sync(~0u, word, step);
  }
  kept = place == row ? word : kept;
}

template <typename T>
__device__ __forceinline__ void store_bits(uint64_t* plane, const Part<T>& part, uint32_t kept) {
  if (part.word() >= 0) {
    reinterpret_cast<uint32_t*>(plane)[part.word()] = kept;
  }
}

// The word that this lane reads; take_bits gives every lane its own part of it.
template <typename T>
__device__ __forceinline__ uint32_t load_bits(const uint64_t* plane, const Part<T>& part) {
  return part.word() >= 0 ? reinterpret_cast<const uint32_t*>(plane)[part.word()] : 0;
}

template <typename T>
__device__ __forceinline__ uint32_t take_bits(uint32_t loaded, const Part<T>& part, int row) {
  using tile = Tile<T>;
  const int place = part.lane % tile::kSharers;
  const uint32_t word = __shfl_sync(~0u, loaded, part.lane - place + row);
  return word >> (place * tile::kVector) & ((1u << tile::kVector) - 1);
}

} // namespace clampgrad::cuda
