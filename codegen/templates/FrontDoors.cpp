// The front doors: check the names, choose the path. How a gradient is recorded is in csrc/ops.

#include "Kernels.h"
#include "ops/mixed.h"
#include "ops/recorded.h"

namespace clampgrad::native {

${front_doors}

} // namespace clampgrad::native
