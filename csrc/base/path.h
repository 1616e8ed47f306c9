#pragma once
// Which of the two paths behind a front door a tensor takes (docs/architecture.md).

#include <ATen/core/Tensor.h>

#include <optional>
#include <type_traits>

namespace clampgrad {

// An ordinary strided tensor of a backend with kernels here, no mode of this thread in between
// (tracing, a functorch level, a dispatch mode).
bool is_plain(const at::Tensor& self);

// False where no gradient can be recorded, so that the front door is the ATen operator and no more.
bool may_need_gradient(const at::Tensor& self);

bool has_kernels(at::ScalarType dtype);

// A plain tensor that carries no tangent: nothing but reverse mode would see an operator on it.
bool is_eager(const at::Tensor& self);

// Of all arguments of an operator: numbers and names are.
template <bool (*is)(const at::Tensor&), typename... Args>
bool are_all(const Args&... args) {
  const auto holds = [](const auto& arg) {
    using Arg = std::decay_t<decltype(arg)>;
    if constexpr (std::is_same_v<Arg, std::optional<at::Tensor>>) {
      return !arg || is(*arg);
    } else if constexpr (std::is_same_v<Arg, at::Tensor>) {
      return is(arg);
    } else {
      return true;
    }
  };
  return (... && holds(args));
}
template <typename... Args>
bool are_plain(const Args&... args) {
  return are_all<is_plain>(args...);
}
template <typename... Args>
bool are_eager(const Args&... args) {
  return are_all<is_eager>(args...);
}

// An eager tensor of a dtype with kernels here.
bool takes_fast_path(const at::Tensor& self);

} // namespace clampgrad
