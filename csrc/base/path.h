#pragma once
// Which of the two paths behind a front door a tensor takes (docs/architecture.md).

#include "base/for_python.h"

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <optional>
#include <type_traits>

namespace clampgrad {

using OptionalTensor = std::optional<at::Tensor>;

// Whether a torch.func transform is running.
bool is_in_transform();

// Whether calls are recorded as a graph of functions, by torch.compile for example.
bool is_functionalizing();

// Whether the tensor is strided, of a backend with kernels here, while no tracer, level or mode is
// active.
CLAMPGRAD_FOR_PYTHON bool is_plain(const at::Tensor& self);

// While it is excluded, no tensor is plain. torch.jit.trace records our operator and is invisible
// to what runs inside: bits that a kernel saved there would be a constant of the trace. No kernel
// has this key, so excluding it marks the thread without any effect in torch.
constexpr auto kJitTraceKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

// Whether dispatch modes are on that do not trace. What a call saves must not depend on these,
// because a checkpoint may run it again without them.
bool has_observing_mode();
constexpr c10::DispatchKeySet kModeKeys(
    {c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot});

// Whether the tensor requires grad, while that is recorded, or carries a tangent.
bool is_differentiated(const at::Tensor& self);

// False where no gradient can be recorded, so that the front door is the ATen operator and no more.
bool may_need_gradient(const at::Tensor& self);

// Whether a fused kernel may run: the tensor is plain (observing modes aside), has no tangent, and
// its device has kernels. Then only reverse mode and such modes could see an operator.
bool is_fusable(const at::Tensor& self);
bool is_fusable_dtype(at::ScalarType dtype);

// Whether both are plain (a saved-tensor hook may return any bits), and the gradient is not
// differentiated.
bool is_fusable_backward(const at::Tensor& grad, const at::Tensor& bits);

// Whether a predicate is true for any Tensor among the arguments of an operator, also in lists. The
// others are numbers and names, or undefined.
template <typename F, typename Arg>
bool any_tensor(const F& predicate, const Arg& arg) {
  if constexpr (std::is_same_v<Arg, at::Tensor>) {
    return arg.defined() && predicate(arg);
  } else if constexpr (std::is_same_v<Arg, OptionalTensor>) {
    return arg && any_tensor(predicate, *arg);
  } else if constexpr (std::is_same_v<Arg, at::TensorList>) {
    return std::any_of(
        arg.begin(), arg.end(), [&](const at::Tensor& t) { return any_tensor(predicate, t); });
  } else {
    return false;
  }
}
template <typename F, typename... Args>
bool all_tensors(const F& predicate, const Args&... args) {
  return !(any_tensor([&](const at::Tensor& t) { return !predicate(t); }, args) || ...);
}
template <typename... Args>
bool any_may_need_gradient(const Args&... args) {
  return (any_tensor(may_need_gradient, args) || ...);
}

} // namespace clampgrad
