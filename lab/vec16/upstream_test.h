// What the tests that our patches add to upstream's vec_test_all_types.cpp need, in place of
// googletest and vec_test_all_types.h, which no wheel has.

#pragma once
#include <ATen/cpu/vec/vec.h>
#include <c10/util/irange.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>

#define CACHE_ALIGN alignas(64)

using vBFloat16 = at::vec::Vectorized<c10::BFloat16>;
using vHalf = at::vec::Vectorized<c10::Half>;

template <typename V>
using UholdType = std::conditional_t<std::is_same_v<V, vHalf>, c10::Half, c10::BFloat16>;

template <typename T>
T maximum(const T& a, const T& b) {
  return a > b ? a : b;
}
template <typename T>
T minimum(const T& a, const T& b) {
  return a < b ? a : b;
}
template <typename T>
T clamp_min(const T& a, const T& min) {
  return a < min ? min : a;
}
template <typename T>
T clamp_max(const T& a, const T& max) {
  return a > max ? max : a;
}

inline bool failed = false;

// The end of a failed assertion: return Fail() = Message() << ... leaves the test, which is void.
struct Message {
  std::ostream& operator*() const {
    return std::cout;
  }
};
struct Fail {
  void operator=(std::ostream& out) const {
    out << std::endl;
    failed = true;
  }
};
#define ASSERT_TRUE(holds) \
  if (holds)               \
    ;                      \
  else                     \
    return Fail() = *Message()
