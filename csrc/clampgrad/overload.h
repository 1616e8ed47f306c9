#pragma once
// Chooses the overload for the Bounds of the functions for C++.

#include "clampgrad/clampgrad.h"

#include <c10/util/Exception.h>

namespace clampgrad {

// Calls the overload that fits the bounds: that of numbers, of Tensors, or of one of each.
template <typename Call>
decltype(auto) with_overload(const Call& call, const Bound& min, const Bound& max) {
  if (min.tensor && max.number) {
    return call(*min.tensor, *max.number);
  }
  if (min.number && max.tensor) {
    return call(*min.number, *max.tensor);
  }
  return min.tensor || max.tensor ? call(min.tensor, max.tensor) : call(min.number, max.number);
}

template <typename Call>
decltype(auto) with_overload(const Call& call, const Bound& bound) {
  TORCH_CHECK_VALUE(bound.tensor || bound.number, "clamp_min and clamp_max need a bound");
  return bound.tensor ? call(*bound.tensor) : call(*bound.number);
}

} // namespace clampgrad
