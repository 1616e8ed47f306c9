#pragma once
// How C++ calls an operator: clampgrad::NAME(...), or clampgrad::_ops::NAME::call and ::redispatch.

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/Scalar.h>
#include <c10/core/SymIntArrayRef.h>

#include <optional>
#include <string_view>
#include <tuple>

namespace clampgrad {

namespace _ops {
${operator_declarations}
} // namespace _ops

${operator_functions}

} // namespace clampgrad
