#pragma once
// conventions.yaml for the compiler.

#include "clampgrad/gradient.h"

#include <cstddef>
#include <iterator>
#include <limits>

namespace clampgrad::contract {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// The columns.
constexpr Gradient kExactGradients[] = {${exact}};

// Conventions that depend on which arguments are being differentiated: nothing gets a share where a
// constant is among several active arguments.
constexpr Gradient kDependOnDifferentiated[] = {${depends_on_differentiated}};

// Conventions under which a clamp by a number and a Tensor is one clamp, by a constant Tensor in place
// of the number. Under the others it is a clamp by one bound and then by the other.
constexpr Gradient kOneStep[] = {${one_step}};

// Values of the arguments, and the share of each argument there: 0, or n for g / n.
template <size_t n>
struct Point {
  int line; // of the row in conventions.yaml
  double at[n];
  // Bit i * n + j is set where argument i <= argument j. Not all compilers compare NaN.
  int comparison_mask;
  int active_mask; // of the arguments that the forward can select
  int numbers[std::size(kExactGradients)]; // the share of x between numbers
  int tensors[std::size(kExactGradients)][n];
};

// The masks of points that the rules look up, of x, lo and hi or of two arguments.
${comparison_masks}

${points}

enum class PseudoShare { nothing, g, one, minus_one };

// The share of x, where y is the result.
struct PseudoGradient {
  Gradient gradient;
  bool maximize;
  PseudoShare shares[4][4]; // x = y, x < y, x > y, y is NaN; g < 0, g = 0, g > 0, g is NaN
};
constexpr PseudoGradient kPseudoGradients[] = {
${pseudo_gradients}
};

} // namespace clampgrad::contract
