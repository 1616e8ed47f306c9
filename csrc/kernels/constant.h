#pragma once
// From a value that is known at run time to a template argument; loops whose length is one.

#include "base/bits.h"

namespace clampgrad {

template <auto constant>
struct Constant {
  static constexpr auto value = constant;
};

// Calls f(Constant<value>()). The enumerators of the enum must be 0 to count - 1.
template <int64_t count, int64_t first = 0, typename Enum, typename F>
auto dispatch_constant(Enum value, const F& f) {
  if constexpr (first + 1 < count) {
    if (value != static_cast<Enum>(first)) {
      return dispatch_constant<count, first + 1>(value, f);
    }
  }
  return f(Constant<static_cast<Enum>(first)>());
}

// Calls f(Constant<has_lo>(), Constant<has_hi>()). At least one bound must be there.
template <typename F>
auto dispatch_bounds(bool has_lo, bool has_hi, const F& f) {
  return has_lo && has_hi ? f(Constant<true>(), Constant<true>())
      : has_lo            ? f(Constant<true>(), Constant<false>())
                          : f(Constant<false>(), Constant<true>());
}

// f(0) to f(n - 1). nvcc is told to unroll it, other compilers do as they see fit.
template <int n, typename F>
CLAMPGRAD_HOST_DEVICE void for_each_unrolled(const F& f) {
#if defined(__CUDACC__)
#pragma unroll
#endif
  for (int i = 0; i < n; ++i) {
    f(i);
  }
}

} // namespace clampgrad
