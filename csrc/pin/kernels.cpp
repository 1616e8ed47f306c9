// What aten's clamp and its family do from the first pin on: kernels at the autograd keys, in place
// of torch's own autograd kernels. Every call of the operator from Python or C++ comes here. What
// runs below autograd, as our own operators do, does not.
//
// Note [Registered once]
// ~~~~~~~~~~~~~~~~~~~~~~
// The kernels are registered at the first pin of a process and stay. Each call asks which pin
// holds, and hands over to torch's own kernel if none does. Registering and unregistering with
// every pin would write to the dispatcher's tables while other threads read them, which no lock
// guards, and costs some 0.4 ms per block. Nothing is registered in a process that never pins.

#include "base/path.h"
#include "ops/mixed.h"
#include "pin/pin.h"

#include <ATen/Operators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/result_type.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <atomic>
#include <utility>

namespace clampgrad::pin {

namespace {

using at::Tensor;
using at::TensorList;
using c10::DispatchKey;
using c10::DispatchKeySet;
namespace aten = at::_ops;

// ---- Where nothing is pinned --------------------------------------------------------------------

// torch's own kernel is still at AutogradOther. We do not register there, because no backend that
// clamps has that key.
DispatchKeySet to_torchs_own(DispatchKeySet keys) {
  return (keys & c10::after_autograd_keyset).add(DispatchKey::AutogradOther);
}

// Raises RuntimeError inside what TorchScript differentiates by itself, where no pin reaches.
void refuse_torchscript_autodiff() {
  if (!c10::GradMode::is_enabled()) {
    return;
  }
  // What TorchScript differentiates runs on detached inputs, in a frame of this name, which torch
  // writes in torch/csrc/jit/runtime/graph_executor.cpp; test_pin.py notices another.
  constexpr std::string_view kForward = "<forward op>";
  for (const auto& frame : torch::jit::currentCallstack()) {
    TORCH_CHECK(
        frame.filename != kForward,
        "clampgrad.pin: TorchScript differentiates this clamp by a rule of its own, which no "
        "pin reaches. Call the function that was scripted, or take the pin off around the script.");
  }
}

// The convention for a call with these arguments, if there is one and a gradient to be recorded.
template <typename... Args>
std::optional<Convention> pinned_for(const Args&... args) {
  const auto c = pinned(current());
  if (c && !any_may_need_gradient(args...)) {
    refuse_torchscript_autodiff();
    return std::nullopt;
  }
  return c;
}

// How many calls of an operator a pin reached.
template <typename Aten>
std::atomic<int64_t> reached = 0;

// ---- One Tensor ---------------------------------------------------------------------------------

// Maximum and minimum have no interval to be outside of: a pseudo-gradient leaves them alone.
enum class Kind { clamp, extremum };
bool applies(const std::optional<Convention>& c, Kind kind) {
  return c && (kind == Kind::clamp || !is_pseudo(c->gradient));
}

// `front_door` is called directly: we are where the dispatcher would call it.
template <typename Aten, auto front_door, Kind kind, typename = decltype(&Aten::call)>
struct Kernel;

template <typename Aten, auto front_door, Kind kind, typename Result, typename... Args>
struct Kernel<Aten, front_door, kind, Result (*)(Args...)> {
  static Result call(DispatchKeySet keys, Args... args) {
    const auto c = pinned_for(args...);
    // Where the front door records nothing it calls aten's operator, which is this one.
    if (applies(c, kind) && is_recorded(args...)) {
      reached<Aten>.fetch_add(1, std::memory_order_relaxed);
      return front_door(args..., *c);
    }
    return Aten::redispatch(to_torchs_own(keys), args...);
  }
};

// The front door for the arguments of an operator, as one of its overloads.
template <typename Schema>
struct DoorOf;
template <typename Result, typename... Args>
struct DoorOf<Result(Args...)> {
  using type = Result (*)(Args..., Convention);
};
template <typename Aten>
using Door = typename DoorOf<typename Aten::schema>::type;

template <Extremum op>
Tensor extremum(const Tensor& self, const Tensor& other, Convention c) {
  return front_door::extremum(op, self, other, c.gradient);
}

// ---- Lists of Tensors ---------------------------------------------------------------------------

std::vector<at::Scalar> as_list(const at::Scalar& number, size_t n) {
  return std::vector<at::Scalar>(n, number);
}
template <typename T>
at::ArrayRef<T> as_list(at::ArrayRef<T> list, size_t) {
  return list;
}

// Whether torch refuses a list: it has no clamp of complex numbers, and one node for all results,
// none of which may then be an integer. In place, each has a node of its own.
template <typename Others>
bool is_refused(TensorList self, const Others& others, bool has_one_node) {
  for (size_t i = 0; i < self.size(); ++i) {
    const auto dtype = at::result_type(self[i], others[i]);
    if (c10::isComplexType(dtype) || (has_one_node && !c10::isFloatingType(dtype))) {
      return true;
    }
  }
  return false;
}

template <typename... Lists>
bool any_requires_grad(const Lists&... lists) {
  const auto requires_grad = [](const Tensor& t) { return t.requires_grad(); };
  return c10::GradMode::is_enabled() && (any_tensor(requires_grad, lists) || ...);
}

// One by one, by the operator for one Tensor, which is pinned. What torch refuses, it words the
// error of.
template <typename Aten, typename One, Kind kind, typename = decltype(&Aten::call)>
struct KernelForEach;

template <typename Aten, typename One, Kind kind, typename Result, typename Other>
struct KernelForEach<Aten, One, kind, Result (*)(TensorList, Other)> {
  static constexpr bool in_place = std::is_void_v<Result>;

  static Result call(DispatchKeySet keys, TensorList self, Other other) {
    const bool is_pinned = applies(pinned_for(self, other), kind);
    const auto others = as_list(other, is_pinned ? self.size() : 0);
    if (!is_pinned || others.size() != self.size() ||
        is_refused(self, others, !in_place && any_requires_grad(self, other))) {
      return Aten::redispatch(to_torchs_own(keys), self, other);
    }
    std::vector<Tensor> results(self.begin(), self.end());
    if constexpr (in_place) { // torch looks at all before it writes one
      for (size_t i = 0; i < self.size(); ++i) {
        torch::autograd::check_inplace(self[i], any_may_need_gradient(self[i], others[i]));
      }
    }
    for (size_t i = 0; i < self.size(); ++i) {
      if constexpr (std::is_same_v<Other, at::ArrayRef<at::Scalar>>) {
        // Inductor takes a number that overflows, but not in a list, which it leaves to the
        // operator.
        if (overflows(others[i], self[i])) {
          const auto alone = [&] {
            return Aten::redispatch(to_torchs_own(keys), self.slice(i, 1), other.slice(i, 1));
          };
          if constexpr (in_place) {
            alone();
          } else {
            results[i] = alone()[0];
          }
          continue;
        }
      }
      results[i] = One::call(results[i], others[i]);
    }
    if constexpr (!in_place) {
      return results;
    }
  }
};

// A number beside a Tensor is a constant, also for maximum, which has no operator for it.
template <typename One>
struct WithNumber {
  static Tensor call(const Tensor& self, const at::Scalar& number) {
    return One::call(self, mixed::beside(self.to(at::result_type(self, number)), number));
  }
};

// aten has no maximum in place for one Tensor.
template <Extremum op>
struct InPlace {
  static Tensor& call(Tensor& self, const Tensor& other) {
    return record_extremum_(self, other, op, pinned(current())->gradient);
  }
};

// ---- Under vmap ---------------------------------------------------------------------------------

const c10::SafeKernelFunction* torchs_batched_clamp_ = nullptr;

// torch has no batching rule for clamp_ with Tensors, but loops over the samples. If a bound
// requires grad, so does x once its first sample is written: the others would have the gradient of
// an x that is being differentiated. Under a pin, this rule writes all of them at once.
Tensor& batched_clamp_(
    DispatchKeySet keys, Tensor& self, const OptionalTensor& min, const OptionalTensor& max) {
  if (!pinned(current())) {
    torch::jit::Stack stack = {self, min, max};
    torchs_batched_clamp_->callBoxed(torchs_batched_clamp_->opHandle(), keys, &stack);
    return self;
  }
  return assign(self, at::clamp(self.clone(), min, max));
}

// ---- Registration -------------------------------------------------------------------------------

struct Registration {
  std::vector<std::string> names; // "aten::clamp.Tensor"
  std::vector<c10::RegistrationHandleRAII> handles; // one per operator and key
  std::vector<std::pair<std::string, const std::atomic<int64_t>*>>
      counts; // of those for one Tensor

  Registration() {
    // Macros, because they put the names together.
#define CLAMPGRAD_CLAMP(name)                       \
  add_one<aten::name, front_door::name>();          \
  add_one<aten::name##_, front_door::name##_>();    \
  add_one<aten::name##_Tensor, front_door::name>(); \
  add_one<aten::name##__Tensor, front_door::name##_>();
    CLAMPGRAD_CLAMP(clamp)
    CLAMPGRAD_CLAMP(clamp_min)
    CLAMPGRAD_CLAMP(clamp_max)
#undef CLAMPGRAD_CLAMP
    add_one<aten::maximum, extremum<Extremum::maximum>, Kind::extremum>();
    add_one<aten::minimum, extremum<Extremum::minimum>, Kind::extremum>();
    add_one<aten::fmax, extremum<Extremum::fmax>, Kind::extremum>();
    add_one<aten::fmin, extremum<Extremum::fmin>, Kind::extremum>();

#define CLAMPGRAD_FOREACH(kind, name, of_number, of_tensor)          \
  add_each<aten::_foreach_##name##_Scalar, of_number, Kind::kind>(); \
  add_each<aten::_foreach_##name##_List, of_tensor, Kind::kind>();   \
  add_each<aten::_foreach_##name##_ScalarList, of_number, Kind::kind>();
    CLAMPGRAD_FOREACH(clamp, clamp_min, aten::clamp_min, aten::clamp_min_Tensor)
    CLAMPGRAD_FOREACH(clamp, clamp_min_, aten::clamp_min_, aten::clamp_min__Tensor)
    CLAMPGRAD_FOREACH(clamp, clamp_max, aten::clamp_max, aten::clamp_max_Tensor)
    CLAMPGRAD_FOREACH(clamp, clamp_max_, aten::clamp_max_, aten::clamp_max__Tensor)
    CLAMPGRAD_FOREACH(extremum, maximum, WithNumber<aten::maximum>, aten::maximum)
    CLAMPGRAD_FOREACH(extremum, minimum, WithNumber<aten::minimum>, aten::minimum)
#undef CLAMPGRAD_FOREACH
    // torch has no derivative of the in-place ones with numbers, and says so.
    add_each<aten::_foreach_maximum__List, InPlace<Extremum::maximum>, Kind::extremum>();
    add_each<aten::_foreach_minimum__List, InPlace<Extremum::minimum>, Kind::extremum>();

    torchs_batched_clamp_ = new c10::SafeKernelFunction(
        find<aten::clamp__Tensor>().getComputedKernelForDispatchKey(DispatchKey::FuncTorchBatched));
    add_at(
        DispatchKey::FuncTorchBatched,
        find<aten::clamp__Tensor>(),
        c10::KernelFunction::makeFromUnboxedFunction(TORCH_FN(batched_clamp_)));
  }

  template <typename Aten>
  static c10::OperatorHandle find() {
    return c10::Dispatcher::singleton().findSchemaOrThrow(Aten::name, Aten::overload_name);
  }

  void add_at(DispatchKey key, const c10::OperatorHandle& op, const c10::KernelFunction& kernel) {
    handles.push_back(
        c10::Dispatcher::singleton().registerImpl(
            op.operator_name(),
            key,
            kernel,
            /*cpp_signature=*/std::nullopt,
            /*schema=*/nullptr,
            "clampgrad"));
  }

  template <typename Aten, typename Kernel>
  void add() {
    const auto op = find<Aten>();
    const auto kernel = c10::KernelFunction::makeFromUnboxedFunction(TORCH_FN(Kernel::call));
    for (const auto key : c10::getRuntimeDispatchKeySet(DispatchKey::Autograd)) {
      if (key == DispatchKey::AutogradOther) {
        continue; // see to_torchs_own
      }
      // Replaced, it could not be called where nothing is pinned; kept, it would not be pinned.
      TORCH_CHECK(
          !op.hasKernelForDispatchKey(key),
          "clampgrad.pin: ",
          op.operator_name(),
          " has an autograd kernel of its own at ",
          key,
          ", which a pin cannot reach");
      add_at(key, op, kernel);
    }
    names.push_back(c10::toString(op.operator_name()));
  }

  template <typename Aten, Door<Aten> front_door, Kind kind = Kind::clamp>
  void add_one() {
    add<Aten, Kernel<Aten, front_door, kind>>();
    counts.emplace_back(names.back(), &reached<Aten>);
  }

  template <typename Aten, typename One, Kind kind>
  void add_each() {
    add<Aten, KernelForEach<Aten, One, kind>>();
  }
};

const Registration& registered() {
  // Never destroyed: threads may still call while the process ends.
  static const auto* registration = new Registration;
  return *registration;
}

} // namespace

const std::vector<std::string>& register_kernels() {
  return registered().names;
}

std::unordered_map<std::string, int64_t> calls_reached() {
  std::unordered_map<std::string, int64_t> calls;
  for (const auto& [name, count] : registered().counts) {
    calls[name] = count->load(std::memory_order_relaxed);
  }
  return calls;
}

} // namespace clampgrad::pin
