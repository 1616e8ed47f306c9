#pragma once
// Operators take enums as integers, from anyone who calls them.

#include <c10/util/Exception.h>

#include <cstdint>

namespace clampgrad {

// The one of `count` enumerators that `value` is. Raises ValueError for any other integer.
template <typename Enum>
Enum checked_enum(int64_t value, int64_t count) {
  TORCH_CHECK_VALUE(
      value >= 0 && value < count,
      "clampgrad: expected an enumerator below ",
      count,
      ", got ",
      value);
  return static_cast<Enum>(value);
}

} // namespace clampgrad
