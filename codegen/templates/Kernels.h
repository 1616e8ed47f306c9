#pragma once
// The kernels of the operators: those that csrc/native_functions.yaml names, ATen's among them, and
// those that call the front doors.

#include <ATen/core/Tensor.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/fmax.h>
#include <ATen/ops/fmin.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/where.h>
#include <c10/core/Scalar.h>
#include <c10/core/SymIntArrayRef.h>

#include <array>
#include <optional>
#include <string_view>
#include <tuple>

namespace clampgrad::native {
${kernel_declarations}
} // namespace clampgrad::native
