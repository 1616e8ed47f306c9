#pragma once
// The conventions, and the operators of two Tensors, by name.

#include "base/bits.h"
#include "base/for_python.h"
#include "clampgrad/gradient.h"

#include <optional>
#include <string_view>

namespace clampgrad {

struct NamedGradient {
  std::string_view name;
  Gradient gradient;
};
// Macros, because a name has to be an enumerator and a string.
#define CLAMPGRAD_NAMED(name, value) NamedGradient{#name, Gradient::name},
constexpr NamedGradient kConventions[] = {CLAMPGRAD_EXACT_GRADIENTS(CLAMPGRAD_NAMED)
                                              CLAMPGRAD_PSEUDO_GRADIENTS(CLAMPGRAD_NAMED)};
// All names: those above, and the aliases.
constexpr NamedGradient kNamesAndAliases[] = {CLAMPGRAD_EXACT_GRADIENTS(CLAMPGRAD_NAMED)
                                                  CLAMPGRAD_PSEUDO_GRADIENTS(CLAMPGRAD_NAMED)
                                                      CLAMPGRAD_GRADIENT_ALIASES(CLAMPGRAD_NAMED)};
#undef CLAMPGRAD_NAMED
constexpr int64_t kGradientCount = std::size(kConventions);

// The canonical name of a convention: the first of its names.
constexpr std::string_view name_of(Gradient gradient) {
  const auto* one = kNamesAndAliases;
  while (one->gradient != gradient) {
    ++one;
  }
  return one->name;
}

#define CLAMPGRAD_OR_IS(name, value) || gradient == Gradient::name
constexpr bool is_pseudo(Gradient gradient) {
  return false CLAMPGRAD_PSEUDO_GRADIENTS(CLAMPGRAD_OR_IS);
}
#undef CLAMPGRAD_OR_IS

// What a call asks for.
struct Convention {
  Gradient gradient;
  bool maximize;
};

CLAMPGRAD_FOR_PYTHON std::optional<Gradient> find_gradient(std::string_view name);

// Raises ValueError, with the known names.
[[noreturn]] CLAMPGRAD_FOR_PYTHON void raise_unknown_gradient(std::string_view name);

// Raises ValueError for an unknown name, and for maximize with an exact one.
CLAMPGRAD_FOR_PYTHON Convention parse_convention(std::string_view gradient, bool maximize);

// Checks an enumerator, which may be any integer. Errors call it `name`.
CLAMPGRAD_FOR_PYTHON Convention
check_convention(Gradient gradient, bool maximize, std::string_view name = {});

// The operators of two Tensors: extrema, and clamps by one Tensor. Macros, because a name is an
// enumerator, a string and a part of other names.
#define CLAMPGRAD_EXTREMA(_) _(maximum) _(minimum) _(fmax) _(fmin)
#define CLAMPGRAD_ONE_BOUND_CLAMPS(_) _(clamp_min) _(clamp_max)

// The loops call the functions of this enum, which are therefore inlined everywhere: Note [One
// translation unit per instruction set].
#define CLAMPGRAD_ENUMERATOR(name) name,
enum class PairOperator {
  CLAMPGRAD_EXTREMA(CLAMPGRAD_ENUMERATOR) CLAMPGRAD_ONE_BOUND_CLAMPS(CLAMPGRAD_ENUMERATOR)
};
#undef CLAMPGRAD_ENUMERATOR

// Indexed by PairOperator.
#define CLAMPGRAD_STRING(name) #name,
constexpr std::string_view kPairOperatorNames[] = {
    CLAMPGRAD_EXTREMA(CLAMPGRAD_STRING) CLAMPGRAD_ONE_BOUND_CLAMPS(CLAMPGRAD_STRING)};
#undef CLAMPGRAD_STRING

constexpr std::string_view name_of(PairOperator op) {
  return kPairOperatorNames[static_cast<size_t>(op)];
}
CLAMPGRAD_HOST_DEVICE constexpr bool selects_larger(PairOperator op) {
  return op == PairOperator::maximum || op == PairOperator::fmax || op == PairOperator::clamp_min;
}
CLAMPGRAD_HOST_DEVICE constexpr bool skips_nan(PairOperator op) {
  return op == PairOperator::fmax || op == PairOperator::fmin;
}
#define CLAMPGRAD_OR_IS(name) || op == PairOperator::name
CLAMPGRAD_HOST_DEVICE constexpr bool is_clamp(PairOperator op) {
  return false CLAMPGRAD_ONE_BOUND_CLAMPS(CLAMPGRAD_OR_IS);
}
#undef CLAMPGRAD_OR_IS

// Raises ValueError for an unknown name.
PairOperator parse_pair_operator(std::string_view name);

// Raise ValueError for a pseudo-gradient too: `op` has no interval to be outside of.
Gradient parse_exact_gradient(std::string_view gradient, std::string_view op);
CLAMPGRAD_FOR_PYTHON Gradient
check_exact_gradient(Gradient gradient, std::string_view op, std::string_view name = {});

} // namespace clampgrad
