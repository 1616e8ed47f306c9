#include "clampgrad/clampgrad.h"

#include "Operators.h"
#include "kernels/check.h"
#include "ops/convention.h"

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

// The overload that fits the bounds: numbers, Tensors, or one of each.
#define CLAMPGRAD_CALL(op, out, ...)                                                 \
  const auto name = name_of(gradient);                                               \
  if (min.tensor && max.number) {                                                    \
    return _ops::op##_Tensor_Scalar##out::call(                                      \
        self, *min.tensor, *max.number, name, maximize __VA_OPT__(, ) __VA_ARGS__);  \
  }                                                                                  \
  if (min.number && max.tensor) {                                                    \
    return _ops::op##_Scalar_Tensor##out::call(                                      \
        self, *min.number, *max.tensor, name, maximize __VA_OPT__(, ) __VA_ARGS__);  \
  }                                                                                  \
  return min.tensor || max.tensor                                                    \
      ? _ops::op##_Tensor##out::call(                                                \
            self, min.tensor, max.tensor, name, maximize __VA_OPT__(, ) __VA_ARGS__) \
      : _ops::op##out::call(                                                         \
            self, min.number, max.number, name, maximize __VA_OPT__(, ) __VA_ARGS__)

Tensor clamp(
    const Tensor& self, const Bound& min, const Bound& max, Gradient gradient, bool maximize) {
  CLAMPGRAD_CALL(clamp, );
}

Tensor& clamp_(Tensor& self, const Bound& min, const Bound& max, Gradient gradient, bool maximize) {
  CLAMPGRAD_CALL(clamp_, );
}

Tensor& clamp_out(
    Tensor& out,
    const Tensor& self,
    const Bound& min,
    const Bound& max,
    Gradient gradient,
    bool maximize) {
  CLAMPGRAD_CALL(clamp, _out, out);
}

#undef CLAMPGRAD_CALL

Tensor clamp_min(const Tensor& self, const Bound& min, Gradient gradient, bool maximize) {
  const auto name = name_of(gradient);
  return min.tensor ? _ops::clamp_min_Tensor::call(self, *min.tensor, name, maximize)
                    : _ops::clamp_min::call(self, number(min), name, maximize);
}

Tensor& clamp_min_(Tensor& self, const Bound& min, Gradient gradient, bool maximize) {
  const auto name = name_of(gradient);
  return min.tensor ? _ops::clamp_min__Tensor::call(self, *min.tensor, name, maximize)
                    : _ops::clamp_min_::call(self, number(min), name, maximize);
}

Tensor& clamp_min_out(
    Tensor& out, const Tensor& self, const Bound& min, Gradient gradient, bool maximize) {
  const auto name = name_of(gradient);
  return min.tensor ? _ops::clamp_min_Tensor_out::call(self, *min.tensor, name, maximize, out)
                    : _ops::clamp_min_out::call(self, number(min), name, maximize, out);
}

Tensor clamp_max(const Tensor& self, const Bound& max, Gradient gradient, bool maximize) {
  const auto name = name_of(gradient);
  return max.tensor ? _ops::clamp_max_Tensor::call(self, *max.tensor, name, maximize)
                    : _ops::clamp_max::call(self, number(max), name, maximize);
}

Tensor& clamp_max_(Tensor& self, const Bound& max, Gradient gradient, bool maximize) {
  const auto name = name_of(gradient);
  return max.tensor ? _ops::clamp_max__Tensor::call(self, *max.tensor, name, maximize)
                    : _ops::clamp_max_::call(self, number(max), name, maximize);
}

Tensor& clamp_max_out(
    Tensor& out, const Tensor& self, const Bound& max, Gradient gradient, bool maximize) {
  const auto name = name_of(gradient);
  return max.tensor ? _ops::clamp_max_Tensor_out::call(self, *max.tensor, name, maximize, out)
                    : _ops::clamp_max_out::call(self, number(max), name, maximize, out);
}

Tensor maximum(const Tensor& self, const Tensor& other, Gradient gradient) {
  return _ops::maximum::call(self, other, name_of(gradient), false);
}

Tensor& maximum_out(Tensor& out, const Tensor& self, const Tensor& other, Gradient gradient) {
  return _ops::maximum_out::call(self, other, name_of(gradient), false, out);
}

Tensor minimum(const Tensor& self, const Tensor& other, Gradient gradient) {
  return _ops::minimum::call(self, other, name_of(gradient), false);
}

Tensor& minimum_out(Tensor& out, const Tensor& self, const Tensor& other, Gradient gradient) {
  return _ops::minimum_out::call(self, other, name_of(gradient), false, out);
}

Tensor fmax(const Tensor& self, const Tensor& other, Gradient gradient) {
  return _ops::fmax::call(self, other, name_of(gradient), false);
}

Tensor& fmax_out(Tensor& out, const Tensor& self, const Tensor& other, Gradient gradient) {
  return _ops::fmax_out::call(self, other, name_of(gradient), false, out);
}

Tensor fmin(const Tensor& self, const Tensor& other, Gradient gradient) {
  return _ops::fmin::call(self, other, name_of(gradient), false);
}

Tensor& fmin_out(Tensor& out, const Tensor& self, const Tensor& other, Gradient gradient) {
  return _ops::fmin_out::call(self, other, name_of(gradient), false, out);
}

} // namespace clampgrad
