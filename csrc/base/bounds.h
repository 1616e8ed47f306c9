#pragma once
// Numbers as bounds.

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <optional>

namespace clampgrad {

// A bound that is a number, or none.
using Number = std::optional<at::Scalar>;

// Made of a float that Dynamo makes a symbol because it changes: "zf0" in torch's own spelling,
// which test_compile_training.py notices another of. Where nothing asks for its value, torch up
// to 2.14 may keep one in the graph without a guard (github.com/pytorch/pytorch/issues/194976).
bool is_changing(const Number& bound);

// A bound without such floats: a guard compares each from now on. Any other argument as it is, so
// that a number made of sizes or of data stays a symbol. Python does it, where there are symbols.
void guard_with(at::Scalar (*function)(const at::Scalar&));
at::Scalar guarded(const at::Scalar& bound);
Number guarded(const Number& bound);
template <typename T>
T& guarded(T& argument) {
  return argument;
}

// False for a symbol: asking for its value would fix it in the graph.
bool is_nan(const Number& bound);

// Whether a bound lies beyond the range of the type in which torch.clamp compares floats (on the
// CPU, the dtype). torch.clamp decides whether that is an error. False for a symbol.
bool overflows(const Number& bound, const at::Tensor& self);

// Inductor computes in float32 what has 16 bits, so a symbol differs there from what the forward
// stores, but for an integer that the dtype holds: a guard says that it does.
bool stays_unrounded(const Number& bound, at::ScalarType dtype);

// The bound as the forward of `self` sees it: rounded to its dtype, because an element can be equal
// only to a number of its dtype. A number that overflows is returned as it is, and so is a symbol.
// One that would stay unrounded is asked for its value, if it has one.
Number in_dtype(const Number& bound, const at::Tensor& self);

} // namespace clampgrad
