#pragma once
// The names of the conventions, and what each is made of.

#include "clampgrad/gradient.h"
#include "kernels/gate.h"

#include <array>
#include <string_view>

namespace clampgrad {

enum class Extremum : int64_t { maximum = 0, minimum = 1, fmax = 2, fmin = 3 };

// In the order of Gradient.
constexpr std::array<std::string_view, 7> kGradientNames = {
    "min_norm", "inclusive", "joint", "half", "with_grad", "restoring", "straight_through"};

struct Convention {
  Gradient gradient;
  bool maximize;
};

// Raises ValueError: for an unknown name, with the known ones; for maximize where it means nothing.
Convention parse_convention(std::string_view gradient, bool maximize);

// The same for maximum, minimum, fmax and fmin, which have nothing outside: no pseudo-gradients.
Gradient parse_exact(std::string_view gradient, bool maximize, std::string_view operation);

constexpr bool is_pseudo(Gradient gradient) {
  return gradient == Gradient::with_grad || gradient == Gradient::restoring ||
      gradient == Gradient::straight_through;
}

// What the convention does where both bounds are numbers. Not for straight_through, which has no
// gate.
Gate scalar_gate(Convention convention);

} // namespace clampgrad
