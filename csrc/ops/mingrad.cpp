// The operators without keywords. The functional ones have nodes, so that these kernels are what is
// below autograd: ATen's own operators. The others are front doors.

#include "Kernels.h"

#include <ATen/ops/clamp.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>

namespace clampgrad::native {

using at::Scalar;
using at::Tensor;

#define CLAMPGRAD_TWO_BOUNDS(Bound)                                                           \
  Tensor clamp_mingrad(                                                                       \
      const Tensor& self, const std::optional<Bound>& min, const std::optional<Bound>& max) { \
    return at::clamp(self, min, max);                                                         \
  }                                                                                           \
  Tensor& clamp_mingrad_(                                                                     \
      Tensor& self, const std::optional<Bound>& min, const std::optional<Bound>& max) {       \
    return clamp_(self, min, max, "min_norm", false);                                         \
  }                                                                                           \
  Tensor& clamp_mingrad_out(                                                                  \
      const Tensor& self,                                                                     \
      const std::optional<Bound>& min,                                                        \
      const std::optional<Bound>& max,                                                        \
      Tensor& out) {                                                                          \
    return at::clamp_out(out, self, min, max);                                                \
  }

#define CLAMPGRAD_ONE_BOUND(op, Bound)                                            \
  Tensor op##_mingrad(const Tensor& self, const Bound& bound) {                   \
    return at::op(self, bound);                                                   \
  }                                                                               \
  Tensor& op##_mingrad_(Tensor& self, const Bound& bound) {                       \
    return op##_(self, bound, "min_norm", false);                                 \
  }                                                                               \
  Tensor& op##_mingrad_out(const Tensor& self, const Bound& bound, Tensor& out) { \
    return at::op##_out(out, self, bound);                                        \
  }

#define CLAMPGRAD_EXTREMUM(op)                                                     \
  Tensor op##_mingrad(const Tensor& self, const Tensor& other) {                   \
    return at::op(self, other);                                                    \
  }                                                                                \
  Tensor& op##_mingrad_out(const Tensor& self, const Tensor& other, Tensor& out) { \
    return at::op##_out(out, self, other);                                         \
  }

CLAMPGRAD_TWO_BOUNDS(Scalar)
CLAMPGRAD_TWO_BOUNDS(Tensor)
CLAMPGRAD_ONE_BOUND(clamp_min, Scalar)
CLAMPGRAD_ONE_BOUND(clamp_min, Tensor)
CLAMPGRAD_ONE_BOUND(clamp_max, Scalar)
CLAMPGRAD_ONE_BOUND(clamp_max, Tensor)
CLAMPGRAD_EXTREMUM(maximum)
CLAMPGRAD_EXTREMUM(minimum)

#undef CLAMPGRAD_TWO_BOUNDS
#undef CLAMPGRAD_ONE_BOUND
#undef CLAMPGRAD_EXTREMUM

} // namespace clampgrad::native
