#pragma once
// From the arguments of the functions for C++ to those of the operators.

#include "base/convention.h"
#include "clampgrad/clampgrad.h"
#include "kernels/constant.h"

namespace clampgrad {

inline std::string_view checked_name_of(Gradient gradient) {
  return name_of(checked_enum<Gradient>(static_cast<int64_t>(gradient), kGradients));
}

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

template <typename Call>
decltype(auto) with_overload(const Call& call, const at::Tensor& other) {
  return call(other);
}

} // namespace clampgrad
