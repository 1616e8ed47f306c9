#pragma once
// Rules of vmap and functionalize for an operator that is not ATen's. Register.cpp, which is
// generated, registers them. The front doors decompose.

#include "base/messages.h"
#include "ops/front_doors.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/functorch/PlumbingHelper.h>
#include <ATen/native/TypeProperties.h>

#include <tuple>

namespace clampgrad::level_rules {

using at::Tensor;

// The tensors of a call, as the level being processed sees them.
struct Batch {
  template <typename... Args>
  explicit Batch(const Args&... args) {
    const auto layer = at::functorch::maybeCurrentDynamicLayer();
    TORCH_CHECK(layer, "clampgrad: a tensor of vmap was used outside of it");
    level = layer->layerId();
    const auto is_batched = [&](const Tensor& tensor) {
      max_logical_dim = std::max(max_logical_dim, tensor.dim());
      dtypes |= uint64_t{1} << static_cast<int>(tensor.scalar_type());
      types = at::native::update_result_type_state(tensor, types);
      return at::functorch::isBatchedAtLevel(tensor, level);
    };
    ((has_batched |= any_tensor(is_batched, args)), ...);
  }

  // Returns the tensor inside, with the batch dimension moved to `to` and the others aligned at the
  // end; unchanged if this level does not batch it and it fits. A tensor without dimensions counts
  // less in type promotion, and may lie on the CPU. Inside, a batched one has a dimension, so it is
  // cast to the dtype of the result. If none has dimensions and dtypes differ, all get one.
  Tensor move_batch_dim(const Tensor& tensor, int64_t to) const {
    const auto [value, batch_dim] = at::functorch::unwrapTensorAtLevel(tensor, level);
    if (!batch_dim && (tensor.dim() ? to == 0 : max_logical_dim > 0 || !(dtypes & (dtypes - 1)))) {
      return tensor;
    }
    auto result = batch_dim ? value.movedim(*batch_dim, 0) : tensor.unsqueeze(0);
    if (tensor.dim() < std::min<int64_t>(max_logical_dim, 1) && tensor.scalar_type() != at::kBool) {
      result = result.to(at::native::result_type(types));
    }
    for (auto missing = max_logical_dim - tensor.dim(); missing > 0; --missing) {
      result = result.unsqueeze(1);
    }
    return result.movedim(0, to);
  }
  OptionalTensor move_batch_dim(const OptionalTensor& tensor, int64_t to) const {
    return tensor && tensor->defined() ? OptionalTensor(move_batch_dim(*tensor, to)) : std::nullopt;
  }
  template <typename Other>
  const Other& move_batch_dim(const Other& other, int64_t) const {
    return other;
  }

  int64_t level;
  bool has_batched = false;
  int64_t max_logical_dim = 0; // without the batch dimension
  uint64_t dtypes = 0; // a bit per dtype
  at::native::ResultTypeState types = {};
};

template <auto op, typename Schema = std::remove_pointer_t<decltype(op)>>
struct Batched;

// Calls the same operator, an elementwise one, one level down, with the batch dimension in front.
template <auto op, typename... Args>
struct Batched<op, Tensor(Args...)> {
  static Tensor call(Args... args) {
    const Batch batch(args...);
    c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::FuncTorchBatched);
    if (!batch.has_batched) {
      return op(args...);
    }
    auto result = std::apply(op, std::make_tuple(batch.move_batch_dim(args, 0)...));
    return at::functorch::makeBatched(std::move(result), 0, batch.level);
  }
};
// In place, the written tensor must not be a view of the one inside: autograd would record it.
template <auto op, typename... Args>
struct Batched<op, Tensor&(Tensor&, Args...)> {
  static Tensor& call(Tensor& self, Args... args) {
    const Batch batch(self, args...);
    c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::FuncTorchBatched);
    auto [value, batch_dim] = at::functorch::unwrapTensorAtLevel(self, batch.level);
    if (batch.has_batched) {
      TORCH_CHECK(batch_dim, messages::kInputNotBatched);
      TORCH_CHECK(self.dim() == batch.max_logical_dim, messages::kBoundHasMoreDims);
    }
    batch.has_batched ? op(value, batch.move_batch_dim(args, *batch_dim)...) : op(self, args...);
    return self;
  }
};

// Calls the functional operator in place of the one that writes, as functionalize does with ATen's.
template <auto op, auto functional, typename Schema = std::remove_pointer_t<decltype(op)>>
struct Functionalized;

template <auto op, auto functional, typename... Args>
struct Functionalized<op, functional, Tensor&(Tensor&, Args...)> {
  static Tensor& call(Tensor& self, Args... args) {
    namespace impl = at::functionalization::impl;
    if (!impl::isFunctionalTensor(self)) {
      const auto is_functional = [](const Tensor& t) { return impl::isFunctionalTensor(t); };
      TORCH_CHECK(
          !(any_tensor(is_functional, args) || ...),
          "clampgrad: functionalize() must be given the tensor that is written, as an argument");
      const at::AutoDispatchSkipFunctionalize guard;
      return op(self, args...);
    }
    const auto result = functional(self, args...);
    check_can_hold_result(self, result);
    impl::replace_(self, impl::from_functional_tensor(result));
    impl::commit_update(self);
    impl::sync(self);
    return self;
  }
};

} // namespace clampgrad::level_rules
