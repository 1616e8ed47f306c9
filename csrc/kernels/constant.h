#pragma once
// From an enumerator known at run time to a template argument.

#include <cstdint>

namespace clampgrad {

template <auto constant>
struct Constant {
  static constexpr auto value = constant;
};

// f(Constant<value>()), for enums whose enumerators are 0 to count - 1.
template <int64_t count, int64_t first = 0, typename Enum, typename F>
void with_constant(Enum value, const F& f) {
  if constexpr (first < count) {
    if (value == static_cast<Enum>(first)) {
      f(Constant<static_cast<Enum>(first)>());
    } else {
      with_constant<count, first + 1>(value, f);
    }
  }
}

// f(Constant<value>()) for each of the count enumerators.
template <typename Enum, int64_t count, int64_t first = 0, typename F>
constexpr void foreach_constant(const F& f) {
  if constexpr (first < count) {
    f(Constant<static_cast<Enum>(first)>());
    foreach_constant<Enum, count, first + 1>(f);
  }
}

} // namespace clampgrad
