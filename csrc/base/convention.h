#pragma once
// The conventions by name, and what a call asks for.

#include "clampgrad/gradient.h"

#include <array>
#include <string_view>

namespace clampgrad {

enum class Extremum : int64_t { maximum = 0, minimum = 1, fmax = 2, fmin = 3 };
constexpr int64_t kExtrema = 4;

struct Named {
  std::string_view name;
  Gradient gradient;
};
#define CLAMPGRAD_NAMED(name, value) Named{#name, Gradient::name},
constexpr Named kConventions[] = {CLAMPGRAD_EXACT_GRADIENTS(CLAMPGRAD_NAMED)
                                      CLAMPGRAD_PSEUDO_GRADIENTS(CLAMPGRAD_NAMED)};
// The same and the aliases.
constexpr Named kNames[] = {CLAMPGRAD_EXACT_GRADIENTS(CLAMPGRAD_NAMED) CLAMPGRAD_PSEUDO_GRADIENTS(
    CLAMPGRAD_NAMED) CLAMPGRAD_GRADIENT_ALIASES(CLAMPGRAD_NAMED)};
#undef CLAMPGRAD_NAMED
constexpr int64_t kGradients = std::size(kConventions);

// By the value of the Gradient: from 0 on, without gaps.
constexpr auto kGradientNames = [] {
  std::array<std::string_view, kGradients> names;
  for (const auto& c : kConventions) {
    names.at(static_cast<size_t>(c.gradient)) = c.name;
  }
  return names;
}();

// The canonical name of a convention.
constexpr std::string_view name_of(Gradient gradient) {
  return kGradientNames.at(static_cast<size_t>(gradient));
}

struct Convention {
  Gradient gradient;
  bool maximize;
};

// Raises ValueError: for an unknown name, with the known ones; for maximize with an exact one.
Convention parse_convention(std::string_view gradient, bool maximize);

// The same for maximum, minimum, fmax and fmin, which have nothing outside: no pseudo-gradients.
Gradient parse_exact(std::string_view gradient, bool maximize, std::string_view operation);

#define CLAMPGRAD_OR_IS(name, value) || gradient == Gradient::name
constexpr bool is_pseudo(Gradient gradient) {
  return false CLAMPGRAD_PSEUDO_GRADIENTS(CLAMPGRAD_OR_IS);
}
#undef CLAMPGRAD_OR_IS

} // namespace clampgrad
