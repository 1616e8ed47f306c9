#include "clampgrad/clampgrad.h"

#include "Kernels.h"
#include "Operators.h"
#include "base/convention.h"
#include "base/path.h"
#include "kernels/check.h"

#include <c10/util/Exception.h>

namespace clampgrad {

using at::Tensor;

namespace {

std::string_view name_of(Gradient gradient) {
  return kGradientNames[static_cast<size_t>(
      checked_enum<Gradient>(static_cast<int64_t>(gradient), kGradients))];
}

const at::Scalar& number(const Bound& bound) {
  TORCH_CHECK_VALUE(bound.number, "clamp_min and clamp_max need a bound");
  return *bound.number;
}

} // namespace

// A front door of plain Tensors is called without the dispatcher, for nothing else is to see it. In
// place it is an operator that the profiler sees, since what records it is none.
#define CLAMPGRAD_DISPATCH(overload, op, ...) _ops::overload::call(__VA_ARGS__)
#define CLAMPGRAD_DIRECT(overload, op, ...) \
  (are_plain(__VA_ARGS__) ? native::op(__VA_ARGS__) : _ops::overload::call(__VA_ARGS__))

// The overload that fits the bounds: numbers, Tensors, or one of each.
#define CLAMPGRAD_TWO_BOUNDS(call, op, out, ...)                                           \
  const auto name = name_of(gradient);                                                     \
  if (min.tensor && max.number) {                                                          \
    return call(op##_Tensor_Scalar##out, op, self, *min.tensor, *max.number, __VA_ARGS__); \
  }                                                                                        \
  if (min.number && max.tensor) {                                                          \
    return call(op##_Scalar_Tensor##out, op, self, *min.number, *max.tensor, __VA_ARGS__); \
  }                                                                                        \
  return min.tensor || max.tensor                                                          \
      ? call(op##_Tensor##out, op, self, min.tensor, max.tensor, __VA_ARGS__)              \
      : call(op##out, op, self, min.number, max.number, __VA_ARGS__)

Tensor clamp(
    const Tensor& self, const Bound& min, const Bound& max, Gradient gradient, bool maximize) {
  CLAMPGRAD_TWO_BOUNDS(CLAMPGRAD_DIRECT, clamp, , name, maximize);
}

Tensor& clamp_(Tensor& self, const Bound& min, const Bound& max, Gradient gradient, bool maximize) {
  CLAMPGRAD_TWO_BOUNDS(CLAMPGRAD_DISPATCH, clamp_, , name, maximize);
}

Tensor& clamp_out(
    Tensor& out,
    const Tensor& self,
    const Bound& min,
    const Bound& max,
    Gradient gradient,
    bool maximize) {
  CLAMPGRAD_TWO_BOUNDS(CLAMPGRAD_DISPATCH, clamp, _out, name, maximize, out);
}

#define CLAMPGRAD_ONE_BOUND(op)                                                                  \
  Tensor op(const Tensor& self, const Bound& bound, Gradient gradient, bool maximize) {          \
    const auto name = name_of(gradient);                                                         \
    return bound.tensor ? CLAMPGRAD_DIRECT(op##_Tensor, op, self, *bound.tensor, name, maximize) \
                        : CLAMPGRAD_DIRECT(op, op, self, number(bound), name, maximize);         \
  }                                                                                              \
  Tensor& op##_(Tensor& self, const Bound& bound, Gradient gradient, bool maximize) {            \
    const auto name = name_of(gradient);                                                         \
    return bound.tensor ? _ops::op##__Tensor::call(self, *bound.tensor, name, maximize)          \
                        : _ops::op##_::call(self, number(bound), name, maximize);                \
  }                                                                                              \
  Tensor& op##_out(                                                                              \
      Tensor& out, const Tensor& self, const Bound& bound, Gradient gradient, bool maximize) {   \
    const auto name = name_of(gradient);                                                         \
    return bound.tensor ? _ops::op##_Tensor_out::call(self, *bound.tensor, name, maximize, out)  \
                        : _ops::op##_out::call(self, number(bound), name, maximize, out);        \
  }

CLAMPGRAD_ONE_BOUND(clamp_min)
CLAMPGRAD_ONE_BOUND(clamp_max)

#define CLAMPGRAD_EXTREMUM(op)                                                                \
  Tensor op(const Tensor& self, const Tensor& other, Gradient gradient) {                     \
    return CLAMPGRAD_DIRECT(op, op, self, other, name_of(gradient), false);                   \
  }                                                                                           \
  Tensor& op##_out(Tensor& out, const Tensor& self, const Tensor& other, Gradient gradient) { \
    return _ops::op##_out::call(self, other, name_of(gradient), false, out);                  \
  }

CLAMPGRAD_EXTREMUM(maximum)
CLAMPGRAD_EXTREMUM(minimum)
CLAMPGRAD_EXTREMUM(fmax)
CLAMPGRAD_EXTREMUM(fmin)

#undef CLAMPGRAD_DISPATCH
#undef CLAMPGRAD_DIRECT
#undef CLAMPGRAD_TWO_BOUNDS
#undef CLAMPGRAD_ONE_BOUND
#undef CLAMPGRAD_EXTREMUM

} // namespace clampgrad
