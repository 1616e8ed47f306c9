#pragma once
// The kernels named in csrc/native_functions.yaml.

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <c10/core/SymIntArrayRef.h>

#include <optional>
#include <string_view>
#include <tuple>

namespace clampgrad::native {
${kernel_declarations}
} // namespace clampgrad::native
