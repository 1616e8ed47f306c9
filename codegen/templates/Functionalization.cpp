// In-place and out= variants as functional ones.

#include "Operators.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

namespace clampgrad::functionalization {

using namespace at;

namespace {

// What the generated kernels use to check an in-place call by running it on meta tensors.
constexpr auto exclude_keys_for_meta_dispatch = c10::functorch_transforms_ks |
    c10::DispatchKeySet({
        c10::DispatchKey::FuncTorchDynamicLayerBackMode,
        c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
        c10::DispatchKey::Python,
        c10::DispatchKey::PreDispatch,
    });

[[maybe_unused]] bool has_internal_overlap_helper(const Tensor& t) {
  return at::has_internal_overlap(t) == at::MemOverlap::Yes;
}

[[maybe_unused]] Tensor to_meta(const Tensor& t) {
  if (!t.defined()) return t;
  return at::empty_strided_symint(t.sym_sizes(), t.sym_strides(), t.options().device(c10::kMeta));
}

[[maybe_unused]] std::optional<Tensor> to_meta(const std::optional<Tensor>& t) {
  return t.has_value() ? std::optional<Tensor>(to_meta(*t)) : std::nullopt;
}

[[maybe_unused]] bool disable_meta_reference() {
  return false;
}

${functionalization_definitions}

} // namespace

TORCH_LIBRARY_IMPL(clampgrad, Functionalize, m) {
  ${functionalization_registrations}
}

} // namespace clampgrad::functionalization
