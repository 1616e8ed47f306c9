#include "autograd/inplace.h"

#include "Functions.h"
#include "kernels/fused.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>

namespace clampgrad {

// Note [In place, by hand]
// ~~~~~~~~~~~~~~~~~~~~~~~~
// The kernel of an in-place clamp writes the result over its input and returns the bits of a gate.
// torchgen cannot say that: an in-place operator returns `self` and nothing else. Passing the bits
// as a mutable argument is no way out, because the generated code saves the arguments of an
// in-place operator before it runs: a saved-tensor hook that copies what it gets (save_on_cpu, a
// checkpoint without reentrance) then keeps memory that nobody has written yet.
//
// So this one autograd kernel is written by hand. It does what the generated one of an in-place
// operator does, except that it saves after the call. There is no operator to dispatch on: its one
// caller takes this way only for a plain tensor, where nothing but autograd would see the operator
// (no transform, mode, tracer or tangent). The node is the one of the functional _clamp_gate.
at::Tensor& record_clamp_(
    at::Tensor& self, const Number& min, const Number& max, Gate gate, int64_t order) {
  torch::autograd::check_inplace(self, /*requires_grad=*/true);
  auto node = autograd::make_node<autograd::ClampGateBackward0>(self);
  at::Tensor bits;
  {
    at::AutoDispatchBelowADInplaceOrView guard;
    bits = clamp_gate_(self, min, max, gate, order);
  }
  torch::autograd::increment_version(self);
  node->gate = static_cast<int64_t>(gate);
  node->order = order;
  node->bits_ = torch::autograd::SavedVariable(bits, /*is_output=*/false);
  torch::autograd::rebase_history(self, node);
  return self;
}

} // namespace clampgrad
