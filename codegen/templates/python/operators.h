#pragma once
// The functions of clampgrad._C: the function for C++ behind each, and what torch's parser is told.

#include "clampgrad/clampgrad.h"

namespace clampgrad {

struct Call {
  at::Tensor self;
  Bound bounds[2];
  Gradient gradient;
  bool maximize;
  at::Tensor out; // undefined where there is none
};

enum class Takes { min_and_max, min, max, other };

struct Operator {
  const char* name;
  Takes takes;
  bool inplace;
  at::Tensor (*run)(Call&);
  // What torch's parser is told, for numbers and then for Tensors: one for numbers, so that it words
  // errors as torch does.
  const char* signatures[4];

  int bounds() const {
    return takes == Takes::min_and_max ? 2 : 1;
  }
  bool is_clamp() const {
    return takes != Takes::other;
  }
};

constexpr Operator kOperators[] = {
    ${python_operators}
};

} // namespace clampgrad
