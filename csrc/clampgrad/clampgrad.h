#pragma once
// clamp and its relatives for C++: what `import clampgrad` is for Python.
//
//     auto y = clampgrad::clamp(x, 0, 6);                                  // Gradient::min_norm
//     auto z = clampgrad::clamp_min(x, bound, clampgrad::Gradient::half);  // the bound is a Tensor
//
// Shapes, dtypes and errors are those of the function of the same name in at::. They also raise
// c10::ValueError: for a value that is no Gradient, for `maximize` with an exact convention, and
// for a pseudo-gradient on maximum and its kind.

#include <clampgrad/gradient.h>

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <optional>
#include <type_traits>
#include <utility>

#define CLAMPGRAD_API __attribute__((visibility("default")))

namespace clampgrad {

// A number, which is a constant, a Tensor, which gets a gradient if it requires one, or nothing.
struct Bound {
  Bound() = default;
  Bound(std::nullopt_t) {}
  Bound(at::Tensor value) {
    if (value.defined()) { // an undefined one is no bound, as everywhere in at::
      tensor = std::move(value);
    }
  }
  template <typename T, typename = std::enable_if_t<std::is_convertible_v<T, at::Scalar>>>
  Bound(T value) : number(value) {}

  std::optional<at::Scalar> number;
  std::optional<at::Tensor> tensor;
};

} // namespace clampgrad

// Generated: clamp, clamp_min, clamp_max, with _ and _out too; maximum, minimum, fmax, fmin, with
// _out too. `max` wins where min > max. `maximize` is for with_grad and restoring.
#include <clampgrad/functions.h>

namespace clampgrad {

inline at::Tensor clip(
    const at::Tensor& self,
    const Bound& min,
    const Bound& max = {},
    Gradient gradient = Gradient::min_norm,
    bool maximize = false) {
  return clamp(self, min, max, gradient, maximize);
}

inline at::Tensor clamp_with_grad(
    const at::Tensor& self, const Bound& min, const Bound& max = {}, bool maximize = false) {
  return clamp(self, min, max, Gradient::with_grad, maximize);
}

} // namespace clampgrad
