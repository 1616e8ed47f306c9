#pragma once
// Numbers as bounds.

#include "base/for_python.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <optional>

namespace clampgrad {

// A bound that is a number, or none.
using OptionalScalar = std::optional<at::Scalar>;

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

// Whether a bound depends on a float that Dynamo makes a symbol because it changes: "zf0", as torch
// spells it; test_compile_training.py notices another spelling. If nothing reads its value, torch
// up to 2.14 may keep it in the graph without a guard (github.com/pytorch/pytorch/issues/194976).
bool depends_on_dynamic_float(const OptionalScalar& bound);

// Makes Dynamo guard the value of each such float. Returns a plain number, or the bound itself if
// it also depends on sizes or data. Returns all other arguments unchanged. Python guards the
// symbols: set_symbol_guard() sets its function.
CLAMPGRAD_FOR_PYTHON void set_symbol_guard(at::Scalar (*function)(const at::Scalar&));
at::Scalar guard_dynamic_floats(const at::Scalar& bound);
OptionalScalar guard_dynamic_floats(const OptionalScalar& bound);
template <typename T>
T& guard_dynamic_floats(T& argument) {
  return argument;
}

// Whether a bound is a complex number. A Tensor is not.
template <typename T>
bool is_complex(const T& bound) {
  if constexpr (std::is_convertible_v<T, OptionalScalar>) {
    const OptionalScalar& number = bound;
    return number && number->isComplex();
  }
  return false;
}

// False for a symbol: reading its value would fix it in the graph.
bool is_nan(const OptionalScalar& bound);

// Whether a bound lies beyond the range of the type in which torch.clamp compares floats (on the
// CPU, the dtype). torch.clamp decides whether that is an error. False for a symbol.
bool overflows(const OptionalScalar& bound, const at::Tensor& self);

// Whether Inductor would compare a symbolic bound unrounded: it computes 16-bit values in float32.
// False for an integer that the dtype holds exactly, which a guard then ensures.
bool is_left_unrounded(const OptionalScalar& bound, at::ScalarType dtype);

// Rounds the bound as the forward of `self` does, to its dtype: an element can be equal only to a
// number of its dtype. A number that overflows is returned as it is, and so is a symbol,
// unless it would stay unrounded and has a value: then that is returned, rounded.
OptionalScalar round_to_dtype(const OptionalScalar& bound, const at::Tensor& self);

} // namespace clampgrad
