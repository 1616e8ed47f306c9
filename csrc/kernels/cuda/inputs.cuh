#pragma once
// How a kernel reads its inputs: Note [Inputs where they lie] in kernels/layout.h.
//
// An index is divided by the sizes, one dimension after the other. Where the innermost dimension is
// made of whole vectors of 16 bytes, vectors are counted instead of elements: one index leads to a
// load of 128 bits, or to the one number that all elements of the vector take (a channel of NCHW,
// or no dimension). Everything else goes element by element.

#include "kernels/constant.h"
#include "kernels/cuda/tile.cuh"
#include "kernels/layout.h"

#include <algorithm>
#include <array>

namespace clampgrad::cuda {

// All inputs lie as the result does.
struct FlatInputs {
  template <typename T, int rows>
  __device__ __forceinline__ void load(
      const Tile<T, rows>& tile, const T* from, int, int row, Vector<T>& to) const {
    tile.load(from, row, to);
  }
  __device__ __forceinline__ int64_t offset(int, int64_t element) const {
    return element;
  }
};

struct OffsetCalculator {
  struct Dim {
    uint32_t minus_size, multiplier, shift, stride;
  };
  Dim dim[Layout::kDims]; // the innermost first
  int last = 0; // dimension
  uint32_t last_stride = 0;
  int log2_vector_size = 0; // an index counts so many elements, as a power of 2,
  uint32_t step = 0; // which lie at the same place, or one after the other

  __device__ __forceinline__ int64_t offset_of_index(uint32_t index) const {
    uint64_t at = 0;
#if defined(__CUDACC__)
#pragma unroll // no array of parameters is then indexed by a variable, which would need a stack
#endif
    for (int d = 0; d < Layout::kDims - 1; ++d) {
      if (d == last) {
        break;
      }
      // The quotient of every index below 2^31. The multiplier is 2^(32 + shift) / size, rounded
      // up, and the power 2^(1 + shift) is the first that is not less than the size.
      const uint32_t outer = __umulhi(index, dim[d].multiplier) >> dim[d].shift;
      at += uint64_t{index + outer * dim[d].minus_size} * dim[d].stride;
      index = outer;
    }
    return static_cast<int64_t>(at + uint64_t{index} * last_stride);
  }
  __device__ __forceinline__ int64_t offset_of_element(int64_t i) const {
    const auto in_unit = static_cast<uint32_t>(i) & ((1u << log2_vector_size) - 1);
    return offset_of_index(static_cast<uint32_t>(i >> log2_vector_size)) + in_unit * step;
  }
};

// For vectors of so many elements, a power of 2, or for single ones if `unit` is 1.
inline OffsetCalculator make_offset_calculator(const Layout& layout, int64_t unit) {
  OffsetCalculator calculator = {};
  calculator.last = -1;
  calculator.step = static_cast<uint32_t>(layout.stride[0]);
  while (int64_t{1} << calculator.log2_vector_size < unit) {
    ++calculator.log2_vector_size;
  }
  for (int d = 0; d < layout.dims; ++d) {
    const auto size = static_cast<uint32_t>(d == 0 ? layout.size[0] / unit : layout.size[d]);
    if (size <= 1 && layout.dims > 1) { // a vector is the whole dimension
      continue;
    }
    const auto stride = d == 0 ? layout.stride[0] * unit : layout.stride[d];
    uint32_t shift = 0;
    while (uint64_t{2} << shift < size) {
      ++shift;
    }
    const auto multiplier = ((uint64_t{1} << (32 + shift)) + size - 1) / std::max(size, 1u);
    calculator.dim[++calculator.last] = {
        0 - size, static_cast<uint32_t>(multiplier), shift, static_cast<uint32_t>(stride)};
  }
  calculator.last_stride = calculator.dim[calculator.last].stride;
  return calculator;
}

// Whether each aligned vector of so many elements lies together, or at one place.
inline bool can_load_vectors(const Layout& layout, int64_t elements, const void* memory) {
  const bool together = layout.stride[0] == 1;
  bool fits = together || layout.stride[0] == 0;
  fits = fits && (layout.dims == 1 || layout.size[0] % elements == 0);
  for (int d = 1; together && d < layout.dims; ++d) {
    fits = fits && layout.stride[d] % elements == 0;
  }
  return fits && (!together || reinterpret_cast<uintptr_t>(memory) % 16 == 0);
}

template <size_t n>
struct StridedInputs {
  OffsetCalculator calculators[n];

  template <typename T, int rows>
  __device__ __forceinline__ void load(
      const Tile<T, rows>& tile, const T* from, int k, int row, Vector<T>& to) const {
    from += calculators[k].offset_of_index(tile.vector(row));
    if (calculators[k].step == 0) {
      const T value = *from;
      for_each_unrolled<Row<T>::kVector>([&](int i) { to.values[i] = value; });
    } else {
      const uint4 words = load128(from);
      std::memcpy(&to, &words, sizeof(to));
    }
  }
  __device__ __forceinline__ int64_t offset(int k, int64_t element) const {
    return calculators[k].offset_of_element(element);
  }
};

template <size_t n>
StridedInputs<n> make_strided_inputs(const std::array<Layout, n>& layouts, int64_t unit) {
  StridedInputs<n> inputs;
  std::transform(layouts.begin(), layouts.end(), inputs.calculators, [&](const Layout& layout) {
    return make_offset_calculator(layout, unit);
  });
  return inputs;
}

} // namespace clampgrad::cuda
