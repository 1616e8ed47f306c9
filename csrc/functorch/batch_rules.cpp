// vmap. Every operator here is elementwise: a rule moves the batch dimension to the front and calls
// the same operator one level down. The front doors decompose instead (generated Register.cpp).
// Nothing is decided here about what is being differentiated: on a batched tensor that is
// invisible.

#include "Operators.h"
#include "autograd/formulas.h"

#include <ATen/core/Tensor.h>
#include <ATen/functorch/BatchedTensorImpl.h>
#include <torch/library.h>

namespace clampgrad::batch_rules {
namespace {

using at::Tensor;
using at::functorch::maybeGetBatchedImpl;

const Tensor& unwrap(const Tensor& tensor) {
  return tensor;
}

const Tensor& unwrap(const OptionalTensor& tensor) {
  static const Tensor undefined;
  return tensor ? *tensor : undefined;
}

// What the tensors of one call have in common.
struct Batch {
  int64_t level = -1; // the innermost vmap level among them; -1 if none is batched
  int64_t dim = 0; // the most dimensions that one of them shows to the user

  void add(const Tensor& tensor) {
    if (!tensor.defined()) {
      return;
    }
    dim = std::max(dim, tensor.dim());
    if (const auto* batched = maybeGetBatchedImpl(tensor)) {
      level = std::max(level, batched->level());
    }
  }

  // The tensor inside, batch dimension first and shapes aligned at the end; a tensor that this
  // level does not batch broadcasts as it is.
  Tensor physical(const Tensor& tensor) const {
    const auto* batched = tensor.defined() ? maybeGetBatchedImpl(tensor) : nullptr;
    if (!batched || batched->level() != level) {
      return tensor;
    }
    auto result = batched->value().movedim(batched->bdim(), 0);
    for (auto missing = dim - tensor.dim(); missing > 0; --missing) {
      result = result.unsqueeze(1);
    }
    return result;
  }

  OptionalTensor physical(const OptionalTensor& tensor) const {
    return tensor ? OptionalTensor(physical(*tensor)) : std::nullopt;
  }
};

// Calls f with the physical tensors.
template <typename F, typename... Tensors>
Tensor batched(F f, const Tensors&... tensors) {
  Batch batch;
  (batch.add(unwrap(tensors)), ...);
  c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::FuncTorchBatched);
  if (batch.level < 0) {
    return f(tensors...);
  }
  return at::functorch::makeBatched(f(batch.physical(tensors)...), 0, batch.level);
}

// The rule of an operator op(Tensor, other arguments...).
template <auto op, typename... Rest>
Tensor unary(const Tensor& self, Rest... rest) {
  return batched([&](const Tensor& x) { return op(x, rest...); }, self);
}

template <auto op, typename... Rest>
Tensor& unary_(Tensor& self, Rest... rest) {
  batched([&](Tensor x) { return op(x, rest...); }, self);
  return self;
}

// op(Tensor, Tensor, other arguments...)
template <auto op, typename... Rest>
Tensor binary(const Tensor& self, const Tensor& other, Rest... rest) {
  return batched([&](const Tensor& x, const Tensor& y) { return op(x, y, rest...); }, self, other);
}

// op(Tensor, Tensor?, Tensor?, other arguments...)
template <auto op, typename... Rest>
Tensor clamp(
    const Tensor& self, const OptionalTensor& min, const OptionalTensor& max, Rest... rest) {
  return batched(
      [&](const Tensor& x, const OptionalTensor& lo, const OptionalTensor& hi) {
        return op(x, lo, hi, rest...);
      },
      self,
      min,
      max);
}

} // namespace

TORCH_LIBRARY_IMPL(clampgrad, FuncTorchBatched, m) {
  using BoundArg = const Number&;
  using Number = const at::Scalar&;
  m.impl("_clamp_pinned", unary<_ops::_clamp_pinned::call, BoundArg, BoundArg, int64_t>);
  m.impl("_clamp_straight_through", unary<_ops::_clamp_straight_through::call, BoundArg, BoundArg>);
  m.impl("_clamp_tensors_pinned", clamp<_ops::_clamp_tensors_pinned::call, int64_t, bool>);
  m.impl("_extremum_pinned", binary<_ops::_extremum_pinned::call, int64_t, int64_t>);
  m.impl("clamp_mingrad", unary<_ops::clamp_mingrad::call, BoundArg, BoundArg>);
  m.impl("clamp_mingrad_", unary_<_ops::clamp_mingrad_::call, BoundArg, BoundArg>);
  m.impl("clamp_mingrad.Tensor", clamp<_ops::clamp_mingrad_Tensor::call>);
  m.impl("clamp_min_mingrad", unary<_ops::clamp_min_mingrad::call, Number>);
  m.impl("clamp_min_mingrad_", unary_<_ops::clamp_min_mingrad_::call, Number>);
  m.impl("clamp_min_mingrad.Tensor", binary<_ops::clamp_min_mingrad_Tensor::call>);
  m.impl("clamp_max_mingrad", unary<_ops::clamp_max_mingrad::call, Number>);
  m.impl("clamp_max_mingrad_", unary_<_ops::clamp_max_mingrad_::call, Number>);
  m.impl("clamp_max_mingrad.Tensor", binary<_ops::clamp_max_mingrad_Tensor::call>);
  m.impl("clamp_mingrad_backward", binary<_ops::clamp_mingrad_backward::call, BoundArg, BoundArg>);
  m.impl("maximum_mingrad", binary<_ops::maximum_mingrad::call>);
  m.impl("minimum_mingrad", binary<_ops::minimum_mingrad::call>);
}

// For compilers the fused backward is the ATen operators that it fuses. Its derivative is that of a
// selection under every convention, so nothing is lost if another level differentiates those.
TORCH_LIBRARY_IMPL(clampgrad, Functionalize, m) {
  m.impl("clamp_mingrad_backward", TORCH_FN(clamp_mingrad_backward_composed));
}

} // namespace clampgrad::batch_rules
