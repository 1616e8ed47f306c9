#pragma once

#include <c10/core/Scalar.h>

#include <optional>

namespace clampgrad {

// A bound that is a number, or none.
using Number = std::optional<at::Scalar>;

} // namespace clampgrad
