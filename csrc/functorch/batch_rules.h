#pragma once
// vmap. A rule moves the batch dimension to the front and calls the same operator, an elementwise
// one, one level down. The front doors decompose. Register.cpp, which is generated, registers both.

#include "base/path.h"

#include <ATen/core/Tensor.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/functorch/PlumbingHelper.h>
#include <ATen/native/TypeProperties.h>

#include <tuple>
#include <type_traits>

namespace clampgrad::batch_rules {

using at::Tensor;

// What the tensors of a call that are batched at the level being processed have in common.
struct Batch {
  template <typename... Args>
  explicit Batch(const Args&... args) {
    const auto layer = at::functorch::maybeCurrentDynamicLayer();
    TORCH_CHECK(layer, "clampgrad: a tensor of vmap was used outside of it");
    level = layer->layerId();
    const auto is_batched = [&](const Tensor& tensor) {
      dim = std::max(dim, tensor.dim());
      types = at::native::update_result_type_state(tensor, types);
      return at::functorch::isBatchedAtLevel(tensor, level);
    };
    ((any |= any_tensor(is_batched, args)), ...);
  }

  // The tensor inside, with the batch dimension first and the others aligned at the end; as it is,
  // where this level does not batch it. A tensor that has no dimension to the user promotes others
  // less than one with dimensions. Inside it has one, so it is cast to the dtype of the result.
  Tensor physical(const Tensor& tensor) const {
    const auto [value, batch_dim] = at::functorch::unwrapTensorAtLevel(tensor, level);
    if (!batch_dim) {
      return tensor;
    }
    auto result = value.movedim(*batch_dim, 0);
    if (tensor.dim() == 0 && tensor.scalar_type() != at::kBool) {
      result = result.to(at::native::result_type(types));
    }
    for (auto missing = dim - tensor.dim(); missing > 0; --missing) {
      result = result.unsqueeze(1);
    }
    return result;
  }
  OptionalTensor physical(const OptionalTensor& tensor) const {
    return tensor && tensor->defined() ? OptionalTensor(physical(*tensor)) : std::nullopt;
  }
  template <typename Other>
  const Other& physical(const Other& other) const {
    return other;
  }

  int64_t level;
  bool any = false;
  int64_t dim = 0; // the most dimensions that one of them shows to the user
  at::native::ResultTypeState types = {};
};

template <auto op, typename Schema = std::remove_pointer_t<decltype(op)>>
struct Rule;

template <auto op, typename Result, typename... Args>
struct Rule<op, Result(Args...)> {
  static Result call(Args... args) {
    const Batch batch(args...);
    c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::FuncTorchBatched);
    if (!batch.any) {
      return op(args...);
    }
    auto result = std::apply(op, std::make_tuple(batch.physical(args)...));
    return at::functorch::makeBatched(std::move(result), 0, batch.level);
  }
};

} // namespace clampgrad::batch_rules
