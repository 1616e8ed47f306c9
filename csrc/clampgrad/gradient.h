#pragma once

#include <cstdint>

namespace clampgrad {

// Which gradient a clamp has: docs/conventions.md. This is the one list of their names in C++. The
// values are part of compiled programs: append the next one, do not reorder.
#define CLAMPGRAD_EXACT_GRADIENTS(_) _(min_norm, 0) _(inclusive, 1) _(joint, 2) _(half, 3)
// Those that are no derivatives of the forward.
#define CLAMPGRAD_PSEUDO_GRADIENTS(_) _(with_grad, 4) _(restoring, 5) _(straight_through, 6)
// Other names, accepted wherever a name is expected: whose gradient it is.
#define CLAMPGRAD_GRADIENT_ALIASES(_) \
  _(torch_2_13, inclusive)            \
  _(torch_2_15, joint)                \
  _(jax, half)                        \
  _(ste, straight_through)

// Gradient::min_norm, Gradient::torch_2_13, ...
#define CLAMPGRAD_ENUMERATOR(name, value) name = value,
enum class Gradient : int64_t {
  CLAMPGRAD_EXACT_GRADIENTS(CLAMPGRAD_ENUMERATOR) CLAMPGRAD_PSEUDO_GRADIENTS(CLAMPGRAD_ENUMERATOR)
      CLAMPGRAD_GRADIENT_ALIASES(CLAMPGRAD_ENUMERATOR)
};
#undef CLAMPGRAD_ENUMERATOR

} // namespace clampgrad
