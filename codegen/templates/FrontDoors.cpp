// Who calls a front door (csrc/ops/front_doors.h): C++ and Python, and the dispatcher, which gives it
// the name of a convention.

#include "Kernels.h"
#include "Operators.h"
#include "base/path.h"
#include "clampgrad/overload.h"
#include "ops/front_doors.h"
#include "ops/mixed.h"

namespace clampgrad {

// ---- The functions for C++, which Python calls too ----------------------------------------------
// Of plain Tensors a front door is called without the dispatcher, for nothing else is to see it.

${api_definitions}

// ---- The kernels of the operators ---------------------------------------------------------------

namespace native {

${operator_kernels}

} // namespace native
} // namespace clampgrad
