#pragma once
// Fused kernels that are no operators. Those of the backward are what formulas call where the
// gradient is a plain tensor that nobody differentiates again. Elsewhere they compose ATen
// operators to the same effect.

#include "base/bounds.h"
#include "kernels/call.h"

#include <ATen/core/Tensor.h>

#include <array>

namespace clampgrad {

// clamp_ of a plain tensor; returns the bits of the gate. Knows nothing of autograd.
at::Tensor clamp_gate_(
    const at::Tensor& self, const Number& min, const Number& max, Gate gate, int64_t order);

// What a forward recorded, and the call that reads it.
template <typename Call>
struct Recorded {
  at::Tensor bits;
  Call call;
  int64_t order;
};
using RecordedGate = Recorded<GateDecode>;
using RecordedPair = Recorded<PairDecode>;
using RecordedTriple = Recorded<TripleDecode>;

// A gradient for each argument that one is wanted for. All have the shape of grad.
template <typename Call>
std::array<at::Tensor, Call::kOut> decode(
    const Recorded<Call>& of, const at::Tensor& grad, const std::array<bool, Call::kOut>& wanted);

} // namespace clampgrad
