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
constexpr Gradient kExact[] = {${exact}};

// Those that ask what is being differentiated: nothing is due where a constant is among several
// active arguments.
constexpr Gradient kAsk[] = {${asks}};

// Those that take a number beside a Tensor as a constant Tensor, not one bound after the other.
constexpr Gradient kAtOnce[] = {${at_once}};

// Values of the arguments, and what each argument gets of g there: 0, or n for g / n.
template <size_t n>
struct Point {
  int line; // of the row in conventions.yaml
  double at[n];
  int order; // bit i * n + j is set where argument i <= argument j; not all compilers compare NaN
  int active; // a bit for each argument that the forward can select
  int numbers[std::size(kExact)]; // what x gets where the bounds are numbers
  int tensors[std::size(kExact)][n];
};

${points}

enum class Gets { nothing, g, one, minus_one };

// What x gets where y is the result.
struct Pseudo {
  Gradient gradient;
  bool maximize;
  Gets gets[4][4]; // x = y, x < y, x > y, y is NaN; g < 0, g = 0, g > 0, g is NaN
};
constexpr Pseudo kPseudo[] = {
${pseudo_gradients}
};

} // namespace clampgrad::contract
