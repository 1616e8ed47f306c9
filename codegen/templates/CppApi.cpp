// The functions for C++. A front door of plain Tensors is called without the dispatcher, for nothing
// else is to see it. In place it goes through the dispatcher, so that the profiler sees an operator:
// what records it (csrc/ops/numbers.cpp) is none.

#include "Kernels.h"
#include "Operators.h"
#include "base/path.h"
#include "clampgrad/overload.h"

namespace clampgrad {

${api_definitions}

} // namespace clampgrad
