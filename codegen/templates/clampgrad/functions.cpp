// A front door of plain Tensors is called without the dispatcher, for nothing else is to see it. In
// place it is an operator that the profiler sees, since what records it is none.

#include "Kernels.h"
#include "Operators.h"
#include "base/path.h"
#include "clampgrad/overload.h"

namespace clampgrad {

${api_definitions}

} // namespace clampgrad
