#pragma once
// How a kernel reads its inputs: Note [Inputs where they lie] in kernels/layout.h.
//
// The number of an element is divided by the sizes, one dimension after the other. A vector of 16
// bytes needs that once where its elements lie together: then it is a load of 128 bits. Where its
// elements lie at one place (a channel of NCHW, or no dimension), it is a load of one number.
// Everything else goes element by element.
//
// A channel of 7 x 7 is a row of 49 elements, so some vectors begin in one row and end in the next.
// Of several inputs, each such vector is two loads of one number. A gradient goes element by
// element there: what is looked up for it (shares.cuh) takes the registers.

#include "kernels/constant.h"
#include "kernels/cuda/tile.cuh"
#include "kernels/layout.h"

#include <algorithm>
#include <array>

namespace clampgrad::cuda {

// All inputs lie as the result does.
struct Flat {
  static constexpr int kRows = cuda::kRows; // of a tile

  template <typename T, int rows>
  __device__ __forceinline__ void load(
      const Tile<T, rows>& tile, const T* from, int, int row, Vector<T>& to) const {
    tile.load(from, row, to);
  }
  __device__ __forceinline__ int64_t place(int, int64_t element) const {
    return element;
  }
};

struct Place {
  struct Dim {
    uint32_t size, multiplier, shift, stride;
  };
  Dim dim[Layout::kDims]; // the innermost first
  int last; // dimension
  bool splits; // a vector may begin in one row and end in the next

  // The quotient and the remainder of every index below 2^31. The multiplier is 2^(32 + shift) /
  // size, rounded up, and the power 2^(1 + shift) is the first that is not less than the size.
  static CLAMPGRAD_HOST_DEVICE uint32_t divided(uint32_t& index, const Dim& by) {
    const auto quotient = static_cast<uint32_t>(uint64_t{index} * by.multiplier >> 32) >> by.shift;
    index -= quotient * by.size;
    return quotient;
  }
  CLAMPGRAD_HOST_DEVICE int64_t of(uint32_t element) const {
    uint64_t at = 0;
#if defined(__CUDACC__)
#pragma unroll // no array of parameters is then indexed by a variable, which would need a stack
#endif
    for (int d = 0; d < Layout::kDims; ++d) {
      if (d == last) {
        at += uint64_t{element} * dim[d].stride;
        break;
      }
      const auto outer = divided(element, dim[d]);
      at += uint64_t{element} * dim[d].stride;
      element = outer;
    }
    return static_cast<int64_t>(at);
  }
  // How many elements of a row are left, this one among them.
  CLAMPGRAD_HOST_DEVICE uint32_t left(uint32_t element) const {
    divided(element, dim[0]);
    return dim[0].size - element;
  }
};

// For vectors of so many elements.
inline Place place_in(const Layout& layout, int64_t elements) {
  Place place = {};
  place.last = layout.dims - 1;
  place.splits = layout.dims > 1 && layout.size[0] % elements != 0;
  for (int d = 0; d < layout.dims; ++d) {
    const auto size = static_cast<uint64_t>(layout.size[d]);
    uint32_t shift = 0;
    while (uint64_t{2} << shift < size) {
      ++shift;
    }
    const auto multiplier = ((uint64_t{1} << (32 + shift)) + size - 1) / size;
    place.dim[d] = {
        static_cast<uint32_t>(size),
        static_cast<uint32_t>(multiplier),
        shift,
        static_cast<uint32_t>(layout.stride[d])};
  }
  return place;
}

// Whether each aligned vector of so many elements lies together, or at one place; or at two, if
// vectors may be split.
inline bool has_vectors(
    const Layout& layout, int64_t elements, const void* memory, bool may_split) {
  const bool together = layout.stride[0] == 1;
  const bool whole = layout.dims == 1 || layout.size[0] % elements == 0;
  if (!together) {
    return layout.stride[0] == 0 && (whole || (may_split && layout.size[0] > elements));
  }
  bool fits = whole && reinterpret_cast<uintptr_t>(memory) % 16 == 0;
  for (int d = 1; d < layout.dims; ++d) {
    fits = fits && layout.stride[d] % elements == 0;
  }
  return fits;
}

template <size_t n>
struct Places {
  static constexpr int kRows = 2; // indices need registers, too
  static constexpr bool kMaySplit = n > 1;

  Place of[n];

  template <typename T, int rows>
  __device__ __forceinline__ void load(
      const Tile<T, rows>& tile, const T* from, int k, int row, Vector<T>& to) const {
    constexpr int kVector = Row<T>::kVector;
    const auto first = static_cast<uint32_t>(tile.at(row));
    const T* const at = from + of[k].of(first);
    if (of[k].dim[0].stride != 0) {
      const uint4 words = load128(at);
      std::memcpy(&to, &words, sizeof(to));
      return;
    }
    const T value = *at;
    unrolled<kVector>([&](int i) { to.values[i] = value; });
    if (kMaySplit && of[k].splits) {
      const auto left = static_cast<int>(of[k].left(first));
      if (left < kVector) {
        const T next = from[of[k].of(first + left)];
        unrolled<kVector>([&](int i) { to.values[i] = i < left ? value : next; });
      }
    }
  }
  __device__ __forceinline__ int64_t place(int k, int64_t element) const {
    return of[k].of(static_cast<uint32_t>(element));
  }
};

template <size_t n>
Places<n> places_in(const std::array<Layout, n>& layouts, int64_t elements) {
  Places<n> places;
  std::transform(layouts.begin(), layouts.end(), places.of, [&](const Layout& layout) {
    return place_in(layout, elements);
  });
  return places;
}

} // namespace clampgrad::cuda
