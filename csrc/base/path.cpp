#include "base/path.h"

#include <c10/core/DispatchKeySet.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#if defined(CLAMPGRAD_WITH_CUDA)
#include "base/gpu.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/macros/Macros.h>

#include <vector>
#endif

namespace clampgrad {

namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

// What a call on this tensor dispatches on: its own keys and those of the modes of this thread.
DispatchKeySet effective_keys(const at::Tensor& self) {
  const auto local = c10::impl::tls_local_dispatch_key_set();
  return (self.key_set() | local.included_) - local.excluded_;
}

// A tensor with any other key (tracing, a functorch level, a subclass, a lazy conjugate) is not
// plain. VmapMode, the mode of batched gradients, changes only random operators.
const DispatchKeySet kPlainKeys = DispatchKeySet({
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
    DispatchKey::VmapMode,
});

// As bits, because operator- of key sets leaves those of the backends in.
bool has_only_plain_keys(DispatchKeySet keys) {
  return (keys.raw_repr() & ~kPlainKeys.raw_repr()) == 0 && !is_in_transform() &&
      !c10::impl::tls_is_dispatch_key_excluded(kJitTraceKey);
}

#if defined(CLAMPGRAD_WITH_CUDA)
// Entry i is for GPU i. The driver is asked once, because asking takes longer than a clamp.
std::vector<bool> gpus_with_kernels() {
  std::vector<bool> has_kernels;
  for (int i = 0; i < c10::cuda::device_count(); ++i) {
    int major = 0, minor = 0;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, i));
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, i));
    has_kernels.push_back(runs_on(C10_STRINGIZE(CLAMPGRAD_WITH_CUDA), major, minor));
  }
  return has_kernels;
}
#endif

// False, with one warning, on a GPU that the kernels were not built for.
bool device_has_kernels(const at::Tensor& self) {
#if defined(CLAMPGRAD_WITH_CUDA)
  if (self.is_cuda()) {
    static const auto gpus = gpus_with_kernels();
    if (!gpus[self.get_device()]) {
      TORCH_WARN_ONCE(
          "clampgrad: the CUDA kernels of this build (" C10_STRINGIZE(CLAMPGRAD_WITH_CUDA) ") do not "
          "run on ", self.device(),
          "; Tensors there take the composed path: the same gradients, slower. A build from source "
          "on this machine has kernels for its GPUs.");
      return false;
    }
  }
#endif
  return true;
}

} // namespace

// Reads the included keys only, because torch.func excludes this one while it processes a level.
bool is_in_transform() {
  return c10::impl::tls_local_dispatch_key_set().included_.has(
      DispatchKey::FuncTorchDynamicLayerFrontMode);
}

bool is_functionalizing() {
  using namespace c10::impl;
  return TorchDispatchModeTLS::get_mode(TorchDispatchModeKey::FUNCTIONAL).has_value();
}

bool has_observing_mode() {
  using Modes = c10::impl::TorchDispatchModeTLS;
  using Key = c10::impl::TorchDispatchModeKey;
  return c10::impl::dispatch_mode_enabled() && !Modes::get_mode(Key::FAKE) &&
      !Modes::get_mode(Key::PROXY) && !Modes::get_mode(Key::FUNCTIONAL);
}

bool is_plain(const at::Tensor& self) {
  return has_only_plain_keys(effective_keys(self));
}

bool is_differentiated(const at::Tensor& self) {
  return (c10::GradMode::is_enabled() && self.requires_grad()) || self._fw_grad(0).defined();
}

bool may_need_gradient(const at::Tensor& self) {
  if (!self.is_floating_point() || self.is_sparse() || self.is_sparse_csr()) {
    return false; // integers carry no gradient, and torch clamps nothing sparse
  }
  if (is_in_transform()) {
    return true; // only the levels know what is being differentiated
  }
  return !(effective_keys(self) & c10::autograd_dispatch_keyset).empty() && is_differentiated(self);
}

bool is_fusable_dtype(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf ||
      dtype == at::kBFloat16;
}

bool is_fusable(const at::Tensor& self) {
  const auto keys = effective_keys(self);
  return (has_only_plain_keys(keys) ||
          (!self.key_set().has_any(kModeKeys) && has_observing_mode() &&
           has_only_plain_keys(keys - kModeKeys))) &&
      !self._fw_grad(0).defined() && device_has_kernels(self);
}

bool is_fusable_backward(const at::Tensor& grad, const at::Tensor& bits) {
  return is_plain(grad) && !is_differentiated(grad) && is_plain(bits);
}

} // namespace clampgrad
