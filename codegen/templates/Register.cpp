// Schemas and the kernels of every dispatch key but autograd's.

#include "Kernels.h"
#include "Operators.h"
#include "functorch/level_rules.h"

#include <torch/library.h>

TORCH_LIBRARY(clampgrad, m) {
  ${schema_registrations}
}

${kernel_registrations}
