#include "base/path.h"

#include <c10/core/DispatchKeySet.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace clampgrad {

namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

// What a call on this tensor would dispatch on: its keys, and those of the modes of this thread.
DispatchKeySet effective_keys(const at::Tensor& self) {
  const auto local = c10::impl::tls_local_dispatch_key_set();
  return (self.key_set() | local.included_) - local.excluded_;
}

// Anything beyond these (tracing, a functorch level, a subclass, a lazy conjugate...) is not plain.
const DispatchKeySet kPlain = DispatchKeySet({
    DispatchKey::CPU,
    DispatchKey::AutogradCPU,
    DispatchKey::AutocastCPU,
#if defined(CLAMPGRAD_WITH_CUDA)
    DispatchKey::CUDA,
    DispatchKey::AutogradCUDA,
    DispatchKey::AutocastCUDA,
#endif
    DispatchKey::BackendSelect,
    DispatchKey::ADInplaceOrView,
});

} // namespace

// The mode key of a transform is excluded while a level is being processed, but stays included all
// the while.
bool in_transform() {
  return c10::impl::tls_local_dispatch_key_set().included_.has(
      DispatchKey::FuncTorchDynamicLayerFrontMode);
}

bool is_plain(const at::Tensor& self) {
  // Not operator-, which leaves the backend bits in.
  return (effective_keys(self).raw_repr() & ~kPlain.raw_repr()) == 0 && !in_transform();
}

bool is_differentiated(const at::Tensor& self) {
  return (c10::GradMode::is_enabled() && self.requires_grad()) || self._fw_grad(0).defined();
}

bool may_need_gradient(const at::Tensor& self) {
  if (!self.is_floating_point() || self.is_sparse() || self.is_sparse_csr()) {
    return false; // integers carry no gradient, and torch clamps nothing sparse
  }
  if (in_transform()) {
    return true; // only the levels know what is being differentiated
  }
  return !(effective_keys(self) & c10::autograd_dispatch_keyset).empty() && is_differentiated(self);
}

bool has_kernels(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf ||
      dtype == at::kBFloat16;
}

bool is_eager(const at::Tensor& self) {
  return is_plain(self) && !self._fw_grad(0).defined();
}

bool takes_kernel(const at::Tensor& grad) {
  return is_plain(grad) && !is_differentiated(grad);
}

} // namespace clampgrad
