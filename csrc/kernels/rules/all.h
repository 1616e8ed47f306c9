// The rules for one kind of V, in the namespace CLAMPGRAD_INSTANCE: Note [One rule for a value, a
// vector and a Tensor]. Each file stands on those before it.

// clang-format off
#include "kernels/rules/element.h"
#include "kernels/rules/numbers.h"
#include "kernels/rules/pairs.h"
#include "kernels/rules/triples.h"
// clang-format on
