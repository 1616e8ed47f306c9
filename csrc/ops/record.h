#pragma once
// Note [Recorded by hand]
// ~~~~~~~~~~~~~~~~~~~~~~~
// A fused forward is not an operator, and no generated autograd kernel records it. In eager mode
// only autograd would see an operator (no transform, mode, tracer or tangent: is_fusable), so the
// dispatcher would only cost time. torchgen cannot generate an in-place operator that also returns
// bits: Note [In place].
//
// torchgen generates the node, from the formula for _clamp_recorded in derivatives.yaml. The rest
// of an autograd kernel is written by hand: the edges (make_node, set_history) and
// save_for_backward().

#include "Functions.h"
#include "base/convention.h"
#include "base/path.h"
#include "kernels/dim_order.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/functions/utils.h>

namespace clampgrad {

template <typename Kernel>
auto call_below_autograd(const Kernel& kernel) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  return kernel();
}

// Like call_below_autograd(), and also hidden from modes.
template <typename Kernel>
auto call_hidden_from_modes(const Kernel& kernel) {
  const c10::impl::ExcludeDispatchKeyGuard guard(
      c10::autograd_dispatch_keyset_with_ADInplaceOrView | kModeKeys);
  return kernel();
}

// Saves the bits and the convention of a call in its node. y is the result.
template <typename Node>
void save_for_backward(
    const Node& node, Convention c, const at::Tensor& y, const at::Tensor& bits) {
  node->bits_ = torch::autograd::SavedVariable(bits, /*is_output=*/false);
  node->gradient = static_cast<int64_t>(c.gradient);
  node->maximize = c.maximize;
  node->dim_order = dim_order_of(y);
}

// Attaches the node to the result. If a mode observes the call, runs torch's operator through
// `aten`, so that the mode sees it, and returns that result. The fused forward ran for its bits:
// what is saved must not depend on modes.
template <typename Node, typename Aten>
at::Tensor attach_node(
    const Node& node, Convention c, at::Tensor y, const at::Tensor& bits, const Aten& aten) {
  save_for_backward(node, c, y, bits);
  if (has_observing_mode()) {
    y = call_below_autograd(aten);
  }
  torch::autograd::set_history(y, node);
  return y;
}

} // namespace clampgrad
