#pragma once
// The names of the conventions, and what each is made of.

#include "base/gate.h"
#include "clampgrad/gradient.h"

#include <array>
#include <string_view>

namespace clampgrad {

enum class Extremum : int64_t { maximum = 0, minimum = 1, fmax = 2, fmin = 3 };
constexpr int64_t kExtrema = 4;

// In the order of Gradient.
constexpr std::array<std::string_view, 7> kGradientNames = {
    "min_norm", "inclusive", "joint", "half", "with_grad", "restoring", "straight_through"};
constexpr auto kGradients = static_cast<int64_t>(kGradientNames.size());

// Other names of theirs, accepted wherever a convention is named: whose gradient it is.
struct Alias {
  std::string_view name;
  Gradient gradient;
};
constexpr std::array<Alias, 4> kAliases = {{
    {"torch_2_13", Gradient::inclusive},
    {"torch_2_15", Gradient::joint},
    {"jax", Gradient::half},
    {"ste", Gradient::straight_through},
}};

struct Convention {
  Gradient gradient;
  bool maximize;
};

// Raises ValueError: for an unknown name, with the known ones; for maximize with an exact one.
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
