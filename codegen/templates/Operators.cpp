#include "Operators.h"

#include <ATen/core/dispatch/Dispatcher.h>

namespace clampgrad::_ops {
${operator_definitions}
} // namespace clampgrad::_ops
