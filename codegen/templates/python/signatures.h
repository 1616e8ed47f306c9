#pragma once
// What the functions of clampgrad._C are called with, for torch's parser of arguments.

#include <cstddef>

namespace clampgrad {

// The places of the parameters. The input and the bounds may be positional.
enum Parameter { kInput, kFirst, kSecond, kGradient, kMaximize, kOut, kParameters };

struct Signature {
  const char* name;
  const char* parameters[kParameters]; // null where it has none of that kind
  // For numbers, then for Tensors: torch's errors name the first.
  const char* overloads[4];
};

namespace signatures {
${python_signatures}
} // namespace signatures

// Each function, with out= or in place.
#define CLAMPGRAD_PYTHON_FUNCTIONS(with_out, in_place) ${python_functions}

} // namespace clampgrad
