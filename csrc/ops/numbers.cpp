// clamp between numbers: the front doors, and its gradient from the saved bits.

#include "Operators.h"
#include "ops/formulas.h"
#include "ops/front_doors.h"
#include "ops/record.h"

#include <ATen/SavedTensorHooks.h>
#include <ATen/ops/clamp.h>

namespace clampgrad {

using at::Scalar;
using at::Tensor;

namespace {

// Kernels take neither a NaN bound, which is the result everywhere, nor a symbol.
bool is_fusable_clamp(const Tensor& self, const OptionalScalar& min, const OptionalScalar& max) {
  const auto plain = [](const OptionalScalar& n) { return !n || !(n->isSymbolic() || is_nan(n)); };
  return is_fusable_dtype(self.scalar_type()) && is_fusable(self) && plain(min) && plain(max);
}

} // namespace

// torch.clamp_min(x, nan) is NaN everywhere, as clamp(x, nan, nan); clamp(x, min=nan) from 2.13 on.
OptionalScalar implied_bound(const Scalar& bound) {
  return is_nan(bound) ? OptionalScalar(bound) : std::nullopt;
}

// Note [In place]
// ~~~~~~~~~~~~~~~
// In place, the kernel writes the result over its input and returns the bits. An in-place operator
// of torchgen's returns `self` and nothing else. As a mutable argument, the bits would be saved
// before the kernel has written them.
//
// A saved-tensor hook may raise, and `self` would have been written with nothing recorded. So where
// there are hooks, the functional form is recorded first, and `self` gets its value and its node
// afterwards (adopt_result). The same happens if `self` has gaps, if modes observe the call, and
// with Tensors for bounds.
//
// `self` does not get its value by copy_ with autograd on: docs/architecture.md says why. Calls
// that none of our kernels takes go to torchgen's in-place operator, at each level of torch.func.

using ClampNode = autograd::ClampRecordedBackward0;

Tensor front_door::clamp(
    const Tensor& self, const OptionalScalar& min, const OptionalScalar& max, Convention c) {
  if (!should_record(self, min, max)) {
    return values::clamp(self, min, max);
  }
  if (c.gradient == Gradient::straight_through) {
    return clampgrad::_clamp_straight_through(self, min, max);
  }
  if (!is_fusable_clamp(self, min, max)) {
    return clampgrad::_clamp_composed(
        copy_for_backward(self),
        round_to_dtype(min, self),
        round_to_dtype(max, self),
        name_of(c.gradient),
        c.maximize);
  }
  const auto node = autograd::make_node<ClampNode>(self);
  const NumberForward call = {number_values(self, min, max), c.gradient};
  auto y = call_hidden_from_modes([&] { return empty_result(self); });
  const auto bits = call_hidden_from_modes([&] { return fused_forward(call, self, y); });
  return attach_node(node, c, std::move(y), bits, [&] { return at::clamp(self, min, max); });
}

Tensor& front_door::clamp_(
    Tensor& self, const OptionalScalar& min, const OptionalScalar& max, Convention c) {
  if (!should_record(self, min, max)) {
    return values::clamp_(self, min, max);
  }
  if (c.gradient == Gradient::straight_through) {
    return clampgrad::_clamp_straight_through_(self, min, max);
  }
  // Under a compiler, clamp a copy of self: backward can recompute masks from the copy, but not
  // from self, which is overwritten. adopt_result() passes on no tangent, so a self with one does
  // not come here.
  if (is_functionalizing() && !is_in_transform() && !self._fw_grad(0).defined()) {
    torch::autograd::check_inplace(self, /*requires_grad=*/true);
    return adopt_result(
        self,
        clamp(is_mutated_graph_input(self) ? copy_mutated_input(self) : self.clone(), min, max, c));
  }
  if (!is_fusable_clamp(self, min, max)) {
    return clampgrad::_clamp_composed_(
        self,
        round_to_dtype(min, self),
        round_to_dtype(max, self),
        name_of(c.gradient),
        c.maximize);
  }
  torch::autograd::check_inplace(self, /*requires_grad=*/true);
  if (at::SavedTensorDefaultHooks::get_hooks() || !self.is_non_overlapping_and_dense() ||
      has_observing_mode()) {
    return adopt_result(self, clamp(self, min, max, c));
  }
  const auto node = autograd::make_node<ClampNode>(self);
  const NumberForward call = {number_values(self, min, max), c.gradient};
  save_for_backward(
      node, c, self, call_below_autograd([&] { return fused_forward(call, self, self); }));
  torch::autograd::increment_version(self);
  torch::autograd::rebase_history(self, node);
  return self;
}

Tensor clamp_backward(const Tensor& grad, const SavedForBackward<1>& saved) {
  return std::get<0>(
      is_fusable_backward(grad, saved.bits) ? fused_backward(saved, grad, {true})
                                            : gradients(saved, grad, std::array{true}));
}

} // namespace clampgrad
