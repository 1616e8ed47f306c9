// The rules for one kind of V, CLAMPGRAD_ISA. Each file stands on those before it.

// clang-format off
#include "kernels/rules/element.h"
#include "kernels/rules/conventions.h"
#include "kernels/rules/gate.h"
#include "kernels/rules/shares.h"
// clang-format on
