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

// The places of the parameters. The input and the bounds may be positional.
enum Parameter { kInput, kFirst, kSecond, kGradient, kMaximize, kOut, kParameters };

struct Operator {
  const char* name;
  const char* parameters[kParameters]; // null where it has none of that kind
  at::Tensor (*run)(Call&);
  // What torch's parser is told, for numbers and then for Tensors: one for numbers, so that it words
  // errors as torch does.
  const char* signatures[4];

  int bounds() const {
    return parameters[kSecond] ? 2 : 1;
  }
  bool is_clamp() const {
    return parameters[kMaximize];
  }
};

constexpr Operator kOperators[] = {
    ${python_operators}
};

} // namespace clampgrad
