#pragma once
// The names of the conventions, and what each is made of.

#include "kernels/gate.h"

#include <array>
#include <string_view>

namespace clampgrad {

enum class Gradient { min_norm, inclusive, joint, half, with_grad, restoring, straight_through };

constexpr std::array<std::string_view, 7> kGradientNames = {
    "min_norm", "inclusive", "joint", "half", "with_grad", "restoring", "straight_through"};

struct Convention {
  Gradient gradient;
  bool maximize;
};

// Raises ValueError: for an unknown name, with the known ones; for maximize where it means nothing.
Convention parse_convention(std::string_view gradient, bool maximize);

// What the convention does where both bounds are numbers. Not for straight_through, which has no gate.
Gate scalar_gate(Convention convention);

} // namespace clampgrad
