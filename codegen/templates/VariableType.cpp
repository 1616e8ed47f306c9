// The autograd kernels, reverse and forward mode.

#include "Functions.h"
#include "Kernels.h"
#include "Operators.h"
#include "base/path.h"
#include "ops/formulas.h"
#include "ops/front_doors.h"

#include <ATen/core/TorchDispatchUtils.h> // for assertions, with CLAMPGRAD_DEBUG=1
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/FunctionsManual.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/library.h>

namespace clampgrad {

namespace redispatch {
namespace {

bool has_functorch_level() {
  return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerBackMode);
}

${redispatch_functions}

} // namespace
} // namespace redispatch

namespace autograd {

using namespace at;
using namespace torch::autograd::generated::details;
namespace impl = torch::autograd::impl;

namespace {
namespace VariableType {

// libtorch has these three, but does not export them.
[[maybe_unused]] const Tensor& unpack(const Tensor& t, const char* name, int pos) {
  TORCH_CHECK(t.defined(), "Expected a Tensor for argument #", pos, " '", name, "', but got None");
  return t;
}
[[maybe_unused]] Tensor& unpack(Tensor& t, const char* name, int pos) {
  TORCH_CHECK(t.defined(), "Expected a Tensor for argument #", pos, " '", name, "', but got None");
  return t;
}
// How many references there are to a tensor that was just made, for assertions (CLAMPGRAD_DEBUG=1).
[[maybe_unused]] size_t expected_fresh_use_count(const Tensor& t) {
  if (!t.defined()) {
    return 0;
  }
  return t.unsafeGetTensorImpl()->pyobj_slot()->load_pyobj() == nullptr ? 1 : 2;
}

${autograd_definitions}

} // namespace VariableType

} // namespace

TORCH_LIBRARY_IMPL(clampgrad, Autograd, m) {
  ${autograd_registrations}
}

} // namespace autograd
} // namespace clampgrad
