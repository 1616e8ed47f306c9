#pragma once
// Fused kernels that are no operators. Those of the backward are what formulas call where the
// gradient is a plain tensor that nobody differentiates again. Elsewhere they compose ATen
// operators to the same effect.

#include "base/number.h"
#include "kernels/rules/conventions.h"

#include <ATen/core/Tensor.h>

#include <array>

namespace clampgrad {

// clamp_ of a plain tensor; returns the bits of the gate. Knows nothing of autograd.
at::Tensor clamp_gate_(
    const at::Tensor& self, const Number& min, const Number& max, Gate gate, int64_t order);

at::Tensor decode_gate(const at::Tensor& grad, const at::Tensor& bits, Gate gate, int64_t order);

// What the forward of two or three Tensors recorded, and how to read it
// (kernels/rules/conventions.h). All arguments have the shape of grad.
struct RecordedPair {
  at::Tensor bits;
  Sharing sharing;
  bool clamps_from_below;
  int64_t order;
};
struct RecordedTriple {
  at::Tensor bits;
  Sharing sharing;
  int64_t order;
};

// A gradient for each argument that one is wanted for.
std::array<at::Tensor, 2> decode(
    const RecordedPair& of, const at::Tensor& grad, const std::array<bool, 2>& wanted);
std::array<at::Tensor, 3> decode(
    const RecordedTriple& of, const at::Tensor& grad, const std::array<bool, 3>& wanted);

} // namespace clampgrad
