// What aten's clamp and its family do from the first pin on, whoever calls them: kernels at the
// autograd keys, in place of torch's own. What runs below autograd does not come here.
//
// Note [Registered once]
// ~~~~~~~~~~~~~~~~~~~~~~
// The kernels are registered at the first pin of a process and stay. Each call looks up the pin,
// and calls torch's own kernel if there is none. Registering with every pin would write to the
// dispatcher's tables while other threads read them, unguarded, and take 0.4 ms per block.

#include "base/messages.h"
#include "ops/front_doors.h"
#include "pin/pin.h"

#include <ATen/Operators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/ops/clamp.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/library.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace clampgrad::pin {

namespace {

using at::Tensor;
using c10::DispatchKey;
using c10::DispatchKeySet;
namespace aten = at::_ops;

// ---- Without a pin ------------------------------------------------------------------------------

// Returns the keys whose kernel is torch's own: we never override AutogradOther.
DispatchKeySet torch_kernel_keys(DispatchKeySet keys) {
  return (keys & c10::after_autograd_keyset).add(DispatchKey::AutogradOther);
}

// Raises RuntimeError inside what TorchScript differentiates by a rule of its own.
void refuse_torchscript_autodiff() {
  if (!c10::GradMode::is_enabled()) {
    return;
  }
  // What TorchScript differentiates runs on detached inputs, in a frame of this name, which torch
  // writes in torch/csrc/jit/runtime/graph_executor.cpp; test_pin.py notices another.
  constexpr std::string_view kForward = "<forward op>";
  for (const auto& frame : torch::jit::currentCallstack()) {
    TORCH_CHECK(frame.filename != kForward, messages::kTorchScriptDifferentiates);
  }
}

// How many calls of an operator got the gradient of a pin.
template <typename Aten>
std::atomic<int64_t> pinned_calls = 0;

// ---- With a pin ---------------------------------------------------------------------------------

// Maximum and minimum have no interval to be outside of: a pseudo-gradient leaves them alone.
enum class Kind { clamp, extremum };
bool pin_applies(const OptionalConvention& c, Kind kind) {
  return c && (kind == Kind::clamp || !is_pseudo(c->gradient));
}

template <typename Schema>
struct Kernel;

template <typename Result, typename... Args>
struct Kernel<Result(Args...)> {
  using FrontDoor = Result (*)(Args..., Convention);

  // The front door is called directly: we are where the dispatcher would call it.
  template <typename Aten, FrontDoor front_door, Kind kind>
  static Result call(DispatchKeySet keys, Args... args) {
    const auto c = current_pin();
    if (pin_applies(c, kind)) {
      // Where the front door records nothing it calls aten's operator, which is this one.
      if (should_record(args...)) {
        pinned_calls<Aten>.fetch_add(1, std::memory_order_relaxed);
        return front_door(guard_dynamic_floats(args)..., *c);
      }
      refuse_torchscript_autodiff();
      if (is_computed_by_clampgrad(args...)) {
        return front_door(args..., *c);
      }
    }
    return c ? Aten::redispatch(torch_kernel_keys(keys), guard_dynamic_floats(args)...)
             : Aten::redispatch(torch_kernel_keys(keys), args...);
  }

  // Whether the front door calls no operator for a call that it does not record.
  template <typename... Bounds>
  static bool is_computed_by_clampgrad(const Tensor& self, const Bounds&... bounds) {
    if constexpr (std::is_lvalue_reference_v<Result>) {
      return values::are_computable_in(self, self, bounds...);
    } else {
      return values::are_computable(self, bounds...);
    }
  }

  // Raises an error where a gradient of a list of Tensors is recorded: no pin reaches lists.
  template <typename Aten, Kind kind>
  static Result call_list(DispatchKeySet keys, Args... args) {
    const bool recorded = (any_tensor(is_differentiated, args) || ...);
    TORCH_CHECK(
        !recorded || !pin_applies(current_pin(), kind),
        messages::format(messages::kNoPinForLists, Aten::name));
    return Aten::redispatch(torch_kernel_keys(keys), args...);
  }
};

template <PairOperator op>
Tensor extremum(const Tensor& self, const Tensor& other, Convention c) {
  return front_door::extremum(op, self, other, c.gradient);
}

// ---- Observed calls -----------------------------------------------------------------------------

std::atomic<Observer> observer = nullptr;
thread_local bool is_observed = false; // whether the call that runs is observed

template <typename Aten, auto kernel, typename Schema = typename Aten::schema>
struct Observed;

template <typename Aten, auto kernel, typename Result, typename... Args>
struct Observed<Aten, kernel, Result(Args...)> {
  static Result call(DispatchKeySet keys, Args... args) {
    const auto observe = observer.load(std::memory_order_relaxed);
    return C10_LIKELY(!observe) || is_observed ? kernel(keys, args...)
                                               : call_observed(observe, keys, args...);
  }

  static Result call_observed(Observer observe, DispatchKeySet keys, Args... args) {
    const auto observe_result = observe(Aten::name, {c10::IValue(args)...});
    if (!observe_result) {
      return kernel(keys, args...);
    }
    struct ObservedScope {
      ObservedScope() {
        is_observed = true;
      }
      ~ObservedScope() {
        is_observed = false;
      }
    };
    const auto run = [&]() -> Result {
      const ObservedScope scope;
      return kernel(keys, args...);
    };
    if constexpr (std::is_void_v<Result>) {
      run();
      observe_result({});
    } else {
      Result result = run();
      observe_result(result);
      return result;
    }
  }
};

// ---- Under vmap ---------------------------------------------------------------------------------

template <typename Aten>
const c10::SafeKernelFunction* torch_batching_rule = nullptr;

// Whether elements of t may share memory, by the strides (at::has_internal_overlap looks for
// strides of 0 alone).
bool may_share_memory(const Tensor& t) {
  std::vector<std::pair<c10::SymInt, c10::SymInt>> dims;
  for (const auto i : c10::irange(t.dim())) {
    dims.emplace_back(t.sym_stride(i), t.sym_size(i));
  }
  std::sort(
      dims.begin(), dims.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  c10::SymInt extent = 0;
  for (const auto& [stride, size] : dims) {
    if (stride <= extent && size > 1) {
      return true;
    }
    extent += stride * (size - 1);
  }
  return false;
}

// torch has no batching rule for clamp_, but loops over the samples. Once the first is written with
// a bound that requires grad, x requires grad too, and the other samples would get the gradient of
// a differentiated x. And the samples are views, through which an outer vmap cannot write what it
// differentiates. So under a pin, the front door writes all samples in one call. torch's own rule
// runs for samples that share memory, which it writes one by one, and for samples too small for
// the result, where it raises torch's error.
template <typename Aten, typename Bound>
Tensor& batched_clamp_(DispatchKeySet keys, Tensor& self, const Bound& min, const Bound& max) {
  const auto c = current_pin();
  const auto* batched = at::functorch::maybeGetBatchedImpl(self);
  const auto is_larger = [&](const Tensor& bound) { return bound.dim() > self.dim(); };
  const bool fits = batched && !any_tensor(is_larger, min) && !any_tensor(is_larger, max);
  if (!c || !should_record(self, min, max) || !fits || may_share_memory(batched->value())) {
    torch::jit::Stack stack = {self, min, max};
    torch_batching_rule<Aten>->callBoxed(torch_batching_rule<Aten>->opHandle(), keys, &stack);
    return self;
  }
  return front_door::clamp_(self, guard_dynamic_floats(min), guard_dynamic_floats(max), *c);
}

// ---- Registration -------------------------------------------------------------------------------

struct Registration {
  std::vector<std::string> names; // "aten::clamp.Tensor"
  std::vector<torch::Library> libraries; // one per operator and key
  std::vector<std::pair<std::string, const std::atomic<int64_t>*>> counts;

  Registration() {
    // Macros, because they put the names together.
#define CLAMPGRAD_CLAMP(name)                                 \
  register_operator<aten::name, front_door::name>();          \
  register_operator<aten::name##_, front_door::name##_>();    \
  register_operator<aten::name##_Tensor, front_door::name>(); \
  register_operator<aten::name##__Tensor, front_door::name##_>();
    CLAMPGRAD_CLAMP(clamp)
    CLAMPGRAD_CLAMP(clamp_min)
    CLAMPGRAD_CLAMP(clamp_max)
#undef CLAMPGRAD_CLAMP
#define CLAMPGRAD_EXTREMUM(name) \
  register_operator<aten::name, extremum<PairOperator::name>, Kind::extremum>();
    CLAMPGRAD_EXTREMA(CLAMPGRAD_EXTREMUM)
#undef CLAMPGRAD_EXTREMUM

#define CLAMPGRAD_FOREACH(kind, name)                                   \
  register_list_operator<aten::_foreach_##name##_Scalar, Kind::kind>(); \
  register_list_operator<aten::_foreach_##name##_List, Kind::kind>();   \
  register_list_operator<aten::_foreach_##name##_ScalarList, Kind::kind>();
    CLAMPGRAD_FOREACH(clamp, clamp_min)
    CLAMPGRAD_FOREACH(clamp, clamp_min_)
    CLAMPGRAD_FOREACH(clamp, clamp_max)
    CLAMPGRAD_FOREACH(clamp, clamp_max_)
    CLAMPGRAD_FOREACH(extremum, maximum)
    CLAMPGRAD_FOREACH(extremum, maximum_)
    CLAMPGRAD_FOREACH(extremum, minimum)
    CLAMPGRAD_FOREACH(extremum, minimum_)
#undef CLAMPGRAD_FOREACH

    register_batching_rule<aten::clamp_, OptionalScalar>();
    register_batching_rule<aten::clamp__Tensor, OptionalTensor>();
  }

  template <typename Aten>
  static c10::OperatorHandle find_operator() {
    return c10::Dispatcher::singleton().findSchemaOrThrow(Aten::name, Aten::overload_name);
  }

  template <typename Function>
  void register_at_key(DispatchKey key, const c10::OperatorHandle& op, Function function) {
    libraries.emplace_back(torch::Library::IMPL, "aten", key, __FILE__, __LINE__)
        .impl(c10::toString(op.operator_name()).c_str(), function);
  }

  template <typename Aten, typename Function>
  void register_at_autograd_keys(Function function) {
    const auto op = find_operator<Aten>();
    for (const auto key : c10::getRuntimeDispatchKeySet(DispatchKey::Autograd)) {
      if (key == DispatchKey::AutogradOther) {
        continue; // see torch_kernel_keys
      }
      // We can neither replace such a kernel, which calls without a pin need, nor keep it, because
      // it ignores pins.
      TORCH_CHECK(
          !op.hasKernelForDispatchKey(key),
          messages::format(messages::kOwnAutogradKernel, op.operator_name(), key));
      register_at_key(key, op, function);
    }
    names.push_back(c10::toString(op.operator_name()));
  }

  template <typename Aten, typename Bound>
  void register_batching_rule() {
    constexpr auto key = DispatchKey::FuncTorchBatched;
    const auto op = find_operator<Aten>();
    torch_batching_rule<Aten> =
        new c10::SafeKernelFunction(op.getComputedKernelForDispatchKey(key));
    register_at_key(key, op, TORCH_FN((batched_clamp_<Aten, Bound>)));
  }

  template <
      typename Aten,
      typename Kernel<typename Aten::schema>::FrontDoor front_door,
      Kind kind = Kind::clamp>
  void register_operator() {
    using Of = Kernel<typename Aten::schema>;
    register_at_autograd_keys<Aten>(
        TORCH_FN((Observed<Aten, &Of::template call<Aten, front_door, kind>>::call)));
    counts.emplace_back(names.back(), &pinned_calls<Aten>);
  }

  template <typename Aten, Kind kind>
  void register_list_operator() {
    using Of = Kernel<typename Aten::schema>;
    register_at_autograd_keys<Aten>(
        TORCH_FN((Observed<Aten, &Of::template call_list<Aten, kind>>::call)));
  }
};

const Registration& get_registration() {
  // Never destroyed: threads may still call while the process ends.
  static const auto* registration = new Registration;
  return *registration;
}

} // namespace

const std::vector<std::string>& register_kernels() {
  return get_registration().names;
}

std::unordered_map<std::string, int64_t> call_counts() {
  std::unordered_map<std::string, int64_t> calls;
  for (const auto& [name, count] : get_registration().counts) {
    calls[name] = count->load(std::memory_order_relaxed);
  }
  return calls;
}

void set_observer(Observer function) {
  observer.store(function, std::memory_order_relaxed);
}

} // namespace clampgrad::pin
