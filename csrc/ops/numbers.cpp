// How a clamp between numbers is recorded.

#include "Functions.h"
#include "Kernels.h"
#include "Operators.h"
#include "base/bounds.h"
#include "kernels/constant.h"
#include "kernels/fused.h"
#include "kernels/memory_order.h"
#include "ops/recorded.h"

#include <ATen/SavedTensorHooks.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>

namespace clampgrad {

using at::Scalar;
using at::Tensor;

namespace {

bool is_complex(const Number& bound) {
  return bound && bound->isComplex();
}

// A bound of NaN makes the result NaN everywhere; kernels need not know that.
bool fast(const Tensor& self, const Number& min, const Number& max) {
  const auto plain = [](const Number& bound) {
    return !bound || !(bound->isSymbolic() || is_nan(bound));
  };
  return has_kernels(self.scalar_type()) && is_eager(self) && plain(min) && plain(max);
}

// Note [In place, by hand]
// ~~~~~~~~~~~~~~~~~~~~~~~~
// The kernel of an in-place clamp writes the result over its input and returns the bits of a gate.
// torchgen cannot say that: an in-place operator returns `self` and nothing else. Passing the bits
// as a mutable argument is no way out, because the generated code saves the arguments of an
// in-place operator before it runs, and the bits do not exist before.
//
// So this one autograd kernel is written by hand. It does what the generated one of an in-place
// operator does, except that it saves after the call. There is no operator to dispatch on: its one
// caller takes this way only for a plain tensor, where nothing but autograd would see the operator
// (no transform, mode, tracer or tangent). The node is the one of the functional _clamp_gate.
//
// A saved-tensor hook may raise, and `self` would have been written with nothing recorded. So where
// there are hooks, the functional operator saves first, and `self` gets its value and its node
// afterwards. So it is with Tensors, whose kernels have no form in place.
//
// copy_ is no way to end: of a view, the gradient would also go through the node that the view had,
// and call hooks on it, where torch replaces that node. Where no kernel of ours is called, torchgen
// has written an operator in place. Inside a torch.func transform it is copy_ all the same: vmap
// cannot go through the node that torch gives to the base of a view.
Tensor& record_clamp_(
    Tensor& self, const Number& min, const Number& max, Gate gate, int64_t order) {
  auto node = autograd::make_node<autograd::ClampGateBackward0>(self);
  Tensor bits;
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

} // namespace

// Below autograd it is torch's own operator.
Tensor native::clamp_pinned(
    const Tensor& self, const Number& min, const Number& max, int64_t gate) {
  checked_enum<Gate>(gate, kGates);
  return at::clamp(self, min, max);
}
Tensor& native::clamp_pinned_(Tensor& self, const Number& min, const Number& max, int64_t gate) {
  checked_enum<Gate>(gate, kGates);
  return at::clamp_(self, min, max);
}

// torch.clamp_min(x, nan) is NaN everywhere. torch.clamp(x, min=nan) is not before 2.13, but with
// NaN for both bounds it is, in every release.
Number other_bound(const Scalar& bound) {
  return is_nan(bound) ? Number(bound) : std::nullopt;
}

// False also where torch raises, so that it words the error.
bool is_recorded(const Tensor& self, const Number& min, const Number& max) {
  return may_need_gradient(self) && (min || max) && !is_complex(min) && !is_complex(max);
}
bool is_recorded(const Tensor& self, const Scalar& bound) {
  return is_recorded(self, bound, std::nullopt);
}

Tensor recorded_clamp(const Tensor& self, const Number& min, const Number& max, Convention c) {
  if (c.gradient == Gradient::straight_through) {
    return clampgrad::_clamp_straight_through(self, min, max);
  }
  const auto gate = static_cast<int64_t>(gate_of(c));
  if (fast(self, min, max)) {
    const auto order = order_of_copy(self);
    return std::get<0>(clampgrad::_clamp_gate(self, min, max, gate, order));
  }
  // A plain tensor may be changed after the call, also where no kernel has taken it.
  return clampgrad::_clamp_pinned(
      is_plain(self) ? self.clone() : self, in_dtype(min, self), in_dtype(max, self), gate);
}

Tensor& recorded_clamp_(Tensor& self, const Number& min, const Number& max, Convention c) {
  if (in_transform()) {
    return assign(self, recorded_clamp(self.clone(), min, max, c));
  }
  if (c.gradient == Gradient::straight_through) {
    return clampgrad::_clamp_straight_through_(self, min, max);
  }
  if (!fast(self, min, max)) {
    const auto gate = static_cast<int64_t>(gate_of(c));
    return clampgrad::_clamp_pinned_(self, in_dtype(min, self), in_dtype(max, self), gate);
  }
  torch::autograd::check_inplace(self, /*requires_grad=*/true);
  if (at::SavedTensorDefaultHooks::get_hooks()) {
    return hand_over(self, recorded_clamp(self, min, max, c));
  }
  const auto order = order_of_copy(self);
  return record_clamp_(self, min, max, gate_of(c), order);
}

} // namespace clampgrad
