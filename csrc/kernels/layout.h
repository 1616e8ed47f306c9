#pragma once
// Note [Inputs where they lie]
// ~~~~~~~~~~~~~~~~~~~~~~~~~~~~
// Elements are counted as the result lies in memory. A bound that is broadcast, the gradient of a
// sum or a mean, and a slice of a larger tensor do not lie so. CUDA's kernels do not copy them: an
// input has a layout, the sizes and strides that lead from the number of an element to its place.
// Dimensions that a single stride steps through are one, so most layouts are short, from the
// innermost dimension on, with the strides in brackets:
//
//   as the result           n (1)
//   no dimension            n (0)
//   a row                   C (1), N (0)
//   a channel of NCHW       HW (0), C (1), N (0)
//   its mean, channels_last C (1), HW (0), N (C)
//
// The clamp of x between numbers reads flat memory, since x seldom lies otherwise. So do the loops
// of the CPU: Note [Repeated inputs] in dim_order.h.

#include <cstdint>

namespace clampgrad {

struct Layout {
  static constexpr int kDims = 4; // more are rare: such an input is copied

  int dims;
  int64_t size[kDims]; // at least 2, but for an input of one element
  int64_t stride[kDims]; // in elements

  static Layout flat(int64_t n) {
    return {1, {n}, {1}};
  }
  bool is_flat() const {
    return dims == 1 && stride[0] == 1;
  }
};

} // namespace clampgrad
