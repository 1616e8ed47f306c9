#pragma once
// The kernels of the operators: those that csrc/native_functions.yaml names, ATen's among them, and
// those that call the front doors.

#include <ATen/core/Tensor.h>
${aten_headers}
#include <c10/core/Scalar.h>
#include <c10/core/SymIntArrayRef.h>

#include <array>
#include <optional>
#include <string_view>
#include <tuple>

namespace clampgrad::native {
${kernel_declarations}
} // namespace clampgrad::native
