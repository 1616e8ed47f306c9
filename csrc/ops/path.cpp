#include "ops/path.h"

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
    DispatchKey::BackendSelect,
    DispatchKey::ADInplaceOrView,
});

} // namespace

bool is_plain(const at::Tensor& self) {
  // Not operator-, which leaves the backend bits in.
  return (effective_keys(self).raw_repr() & ~kPlain.raw_repr()) == 0;
}

bool may_need_gradient(const at::Tensor& self) {
  if (!self.is_floating_point()) {
    return false;
  }
  const auto keys = effective_keys(self);
  if (keys.has(DispatchKey::FuncTorchDynamicLayerFrontMode)) {
    return true; // only the levels know what is being differentiated
  }
  if ((keys & c10::autograd_dispatch_keyset).empty()) {
    return false;
  }
  return (c10::GradMode::is_enabled() && self.requires_grad()) || self._fw_grad(0).defined();
}

bool takes_fast_path(const at::Tensor& self) {
  const auto dtype = self.scalar_type();
  return is_plain(self) &&
      (dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf ||
       dtype == at::kBFloat16) &&
      !self._fw_grad(0).defined();
}

} // namespace clampgrad
