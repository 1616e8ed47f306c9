// vmap. Every operator here is elementwise: a rule moves the batch dimension to the front and calls
// the same operator one level down. The front doors decompose instead (generated Register.cpp).

#include "Operators.h"
#include "autograd/formulas.h"

#include <ATen/ATen.h>
#include <ATen/functorch/BatchedTensorImpl.h>
#include <torch/library.h>

namespace clampgrad::batch_rules {
namespace {

using at::Tensor;
using at::functorch::maybeGetBatchedImpl;

// The innermost vmap level among the arguments; -1 if none is batched.
template <typename... Tensors>
int64_t innermost_level(const Tensors&... tensors) {
  int64_t level = -1;
  for (const Tensor* tensor : {&tensors...}) {
    if (const auto* batched = maybeGetBatchedImpl(*tensor)) {
      level = std::max(level, batched->level());
    }
  }
  return level;
}

// The tensor inside, batch dimension first; a tensor that this level does not batch as it is.
Tensor physical(const Tensor& tensor, int64_t level) {
  const auto* batched = maybeGetBatchedImpl(tensor);
  if (!batched || batched->level() != level) {
    return tensor;
  }
  return batched->value().movedim(batched->bdim(), 0);
}

// Calls f with the physical tensors.
template <typename F, typename... Tensors>
Tensor batched(F f, const Tensors&... tensors) {
  const auto level = innermost_level(tensors...);
  c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::FuncTorchBatched);
  if (level < 0) {
    return f(tensors...);
  }
  return at::functorch::makeBatched(f(physical(tensors, level)...), 0, level);
}

Tensor clamp_pinned(const Tensor& self, const Bound& min, const Bound& max, int64_t gate) {
  return batched([&](const Tensor& x) { return clampgrad::_clamp_pinned(x, min, max, gate); }, self);
}

Tensor clamp_straight_through(const Tensor& self, const Bound& min, const Bound& max) {
  return batched(
      [&](const Tensor& x) { return clampgrad::_clamp_straight_through(x, min, max); }, self);
}

Tensor clamp_mingrad(const Tensor& self, const Bound& min, const Bound& max) {
  return batched([&](const Tensor& x) { return clampgrad::clamp_mingrad(x, min, max); }, self);
}

Tensor clamp_min_mingrad(const Tensor& self, const at::Scalar& min) {
  return batched([&](const Tensor& x) { return clampgrad::clamp_min_mingrad(x, min); }, self);
}

Tensor clamp_max_mingrad(const Tensor& self, const at::Scalar& max) {
  return batched([&](const Tensor& x) { return clampgrad::clamp_max_mingrad(x, max); }, self);
}

Tensor& clamp_mingrad_(Tensor& self, const Bound& min, const Bound& max) {
  batched([&](Tensor x) { return clampgrad::clamp_mingrad_(x, min, max); }, self);
  return self;
}

Tensor& clamp_min_mingrad_(Tensor& self, const at::Scalar& min) {
  batched([&](Tensor x) { return clampgrad::clamp_min_mingrad_(x, min); }, self);
  return self;
}

Tensor& clamp_max_mingrad_(Tensor& self, const at::Scalar& max) {
  batched([&](Tensor x) { return clampgrad::clamp_max_mingrad_(x, max); }, self);
  return self;
}

Tensor clamp_mingrad_backward(
    const Tensor& grad_output, const Tensor& self, const Bound& min, const Bound& max) {
  return batched(
      [&](const Tensor& g, const Tensor& x) {
        return clampgrad::clamp_mingrad_backward(g, x, min, max);
      },
      grad_output,
      self);
}

// A gate is recorded outside of any transform, so only the gradient can be batched (is_grads_batched,
// vectorized jacobians); the unpacked gate broadcasts over the batch.
Tensor gate_backward(
    const Tensor& grad_output, const Tensor& bits, int64_t gate, int64_t order) {
  TORCH_CHECK_NOT_IMPLEMENTED(!maybeGetBatchedImpl(bits), "clampgrad: a batched gate");
  const auto sizes = grad_output.sym_sizes();
  return batched(
      [&](const Tensor& g) {
        return decode_composed(g, clampgrad::_gate_codes_symint(bits, sizes, gate, order), gate);
      },
      grad_output);
}

} // namespace

TORCH_LIBRARY_IMPL(clampgrad, FuncTorchBatched, m) {
  m.impl("_clamp_pinned", TORCH_FN(clamp_pinned));
  m.impl("_clamp_straight_through", TORCH_FN(clamp_straight_through));
  m.impl("clamp_mingrad", TORCH_FN(clamp_mingrad));
  m.impl("clamp_mingrad_", TORCH_FN(clamp_mingrad_));
  m.impl("clamp_min_mingrad", TORCH_FN(clamp_min_mingrad));
  m.impl("clamp_min_mingrad_", TORCH_FN(clamp_min_mingrad_));
  m.impl("clamp_max_mingrad", TORCH_FN(clamp_max_mingrad));
  m.impl("clamp_max_mingrad_", TORCH_FN(clamp_max_mingrad_));
  m.impl("clamp_mingrad_backward", TORCH_FN(clamp_mingrad_backward));
  m.impl("_gate_backward", TORCH_FN(gate_backward));
}

// For compilers the fused backward is the ATen operators that it fuses. Its derivative is that of a
// selection under every convention, so nothing is lost if another level differentiates those.
TORCH_LIBRARY_IMPL(clampgrad, Functionalize, m) {
  m.impl("clamp_mingrad_backward", TORCH_FN(clamp_mingrad_backward_composed));
}

} // namespace clampgrad::batch_rules
