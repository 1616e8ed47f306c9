#pragma once
// Numbers as bounds.

#include "base/for_python.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <optional>

namespace clampgrad {

// A bound that is a number, or none.
using Number = std::optional<at::Scalar>;

// An undefined Tensor is no bound.
inline bool is_given(const at::Tensor& bound) {
  return bound.defined();
}
inline bool is_given(const at::Scalar&) {
  return true;
}
template <typename T>
bool is_given(const std::optional<T>& bound) {
  return bound && is_given(*bound);
}

// Whether it is made of a float that Dynamo makes a symbol because it changes: "zf0", as torch
// spells it; test_compile_training.py notices another spelling. If nothing asks for its value,
// torch up to 2.14 may keep it in the graph without a guard
// (github.com/pytorch/pytorch/issues/194976).
bool is_changing(const Number& bound);

// A bound without such floats: from now on, a guard compares each. Other arguments are returned as
// they are, so a number made of sizes or of data stays a symbol. Python does it for symbols.
CLAMPGRAD_FOR_PYTHON void guard_with(at::Scalar (*function)(const at::Scalar&));
at::Scalar guarded(const at::Scalar& bound);
Number guarded(const Number& bound);
template <typename T>
T& guarded(T& argument) {
  return argument;
}

// For a number, or for a Tensor, which is none.
template <typename T>
bool is_complex(const T& bound) {
  if constexpr (std::is_convertible_v<T, Number>) {
    const Number& number = bound;
    return number && number->isComplex();
  }
  return false;
}

// False for a symbol: asking for its value would fix it in the graph.
bool is_nan(const Number& bound);

// Whether a bound lies beyond the range of the type in which torch.clamp compares floats (on the
// CPU, the dtype). torch.clamp decides whether that is an error. False for a symbol.
bool overflows(const Number& bound, const at::Tensor& self);

// Inductor computes 16-bit values in float32, where a symbol differs from what the forward stores,
// unless it is an integer that the dtype holds, which a guard then ensures.
bool stays_unrounded(const Number& bound, at::ScalarType dtype);

// The bound as the forward of `self` sees it: rounded to its dtype, because an element can be equal
// only to a number of its dtype. A number that overflows is returned as it is, and so is a symbol,
// unless it would stay unrounded and has a value: then that is returned, rounded.
Number in_dtype(const Number& bound, const at::Tensor& self);

} // namespace clampgrad
