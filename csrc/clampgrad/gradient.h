#pragma once

#include <cstdint>

namespace clampgrad {

// Which gradient a clamp has: docs/conventions.md. The values are part of saved graphs: append, do
// not reorder.
enum class Gradient : int64_t {
  min_norm = 0,
  inclusive = 1,
  joint = 2,
  half = 3,
  with_grad = 4,
  restoring = 5,
  straight_through = 6,

  // Whose they are; wherever a name is expected, these names are accepted too.
  torch_2_13 = inclusive,
  torch_2_15 = joint,
  jax = half,
  ste = straight_through,
};

} // namespace clampgrad
