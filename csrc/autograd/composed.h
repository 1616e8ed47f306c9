#pragma once
// The rules for whole Tensors: the composed path.

#include "Operators.h"
#include "autograd/tensor_value.h"
#include "kernels/constant.h"
#include "kernels/rules/conventions.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <type_traits>

#define CLAMPGRAD_ISA composed
#include "kernels/rules/all.h"
#undef CLAMPGRAD_ISA

namespace clampgrad {

// A function of the bits of one code, as its truth table. What a rule reads in recorded bits is
// worked out on these, and each mask that comes out is then one operator.
struct CodeMask {
  uint8_t table = 0;

  friend CodeMask operator&(CodeMask a, CodeMask b) {
    return {static_cast<uint8_t>(a.table & b.table)};
  }
  friend CodeMask operator|(CodeMask a, CodeMask b) {
    return {static_cast<uint8_t>(a.table | b.table)};
  }
  friend CodeMask operator^(CodeMask a, CodeMask b) {
    return {static_cast<uint8_t>(a.table ^ b.table)};
  }
  friend CodeMask operator==(CodeMask a, CodeMask b) {
    return {static_cast<uint8_t>(~(a.table ^ b.table))};
  }
};
constexpr CodeMask kFirstBit = {0b10101010}, kSecondBit = {0b11001100}, kThirdBit = {0b11110000};

// The recorded bits of one call.
struct RecordedBits {
  at::Tensor bits;
  int planes;
  int64_t order;

  TensorMask operator()(CodeMask mask) const {
    if (mask.table == 0) {
      return TensorMask();
    }
    return TensorMask([*this, table = mask.table](const at::Tensor& like) {
      return clampgrad::_mask_symint(bits, like.sym_sizes(), table, planes, order);
    });
  }
};

namespace {

// pushed(), as an operator whose tangent raises.
inline at::Tensor pseudo_gradient_at(
    const at::Tensor& grad, const composed::Position<TensorMask>& at, Gate gate) {
  return clampgrad::_pseudo_gradient(
      grad,
      at.inside.get(grad),
      at.below.get(grad),
      at.above.get(grad),
      static_cast<int64_t>(gate));
}

} // namespace

} // namespace clampgrad
