// What aten's clamp and its family do from the first pin on, whoever calls them: kernels at the
// autograd keys, in place of torch's own. What runs below autograd does not come here.
//
// Note [Registered once]
// ~~~~~~~~~~~~~~~~~~~~~~
// The kernels are registered at the first pin of a process and stay. Each call asks which pin
// holds, and hands over to torch's own kernel if none does. Registering with every pin would write
// to the dispatcher's tables while other threads read them, unguarded, and take 0.4 ms per block.

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

// ---- Where nothing is pinned --------------------------------------------------------------------

// AutogradOther is never overridden, so redispatching there reaches torch's own kernel.
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

// How many calls of an operator a pin reached.
template <typename Aten>
std::atomic<int64_t> reached = 0;

// ---- Where one holds ----------------------------------------------------------------------------

// Maximum and minimum have no interval to be outside of: a pseudo-gradient leaves them alone.
enum class Kind { clamp, extremum };
bool applies(const Pinned& c, Kind kind) {
  return c && (kind == Kind::clamp || !is_pseudo(c->gradient));
}

template <typename Schema>
struct Kernel;

template <typename Result, typename... Args>
struct Kernel<Result(Args...)> {
  using Door = Result (*)(Args..., Convention);

  // The front door is called directly: we are where the dispatcher would call it.
  template <typename Aten, Door front_door, Kind kind>
  static Result call(DispatchKeySet keys, Args... args) {
    const auto c = current();
    if (applies(c, kind)) {
      // Where the front door records nothing it calls aten's operator, which is this one.
      if (is_recorded(args...)) {
        reached<Aten>.fetch_add(1, std::memory_order_relaxed);
        return front_door(guarded(args)..., *c);
      }
      refuse_torchscript_autodiff();
      if (is_computed_by_ours(args...)) {
        return front_door(args..., *c);
      }
    }
    return c ? Aten::redispatch(to_torchs_own(keys), guarded(args)...)
             : Aten::redispatch(to_torchs_own(keys), args...);
  }

  // Whether the front door calls no operator, where it records nothing.
  template <typename... Bounds>
  static bool is_computed_by_ours(const Tensor& self, const Bounds&... bounds) {
    if constexpr (std::is_lvalue_reference_v<Result>) {
      return values::are_computable_in(self, self, bounds...);
    } else {
      return values::are_computable(self, bounds...);
    }
  }

  // No pin reaches a list of Tensors, which raises an error where a gradient is recorded.
  template <typename Aten, Kind kind>
  static Result call_for_each(DispatchKeySet keys, Args... args) {
    const bool recorded = (any_tensor(is_differentiated, args) || ...);
    TORCH_CHECK(
        !recorded || !applies(current(), kind),
        "clampgrad.pin: no pin reaches a list of tensors. Call the operator for each of them, not ",
        Aten::name,
        ", or take the pin off around this call (`with clampgrad.pin(None)`)");
    return Aten::redispatch(to_torchs_own(keys), args...);
  }
};

template <Extremum op>
Tensor extremum(const Tensor& self, const Tensor& other, Convention c) {
  return front_door::extremum(op, self, other, c.gradient);
}

// ---- Where somebody observes --------------------------------------------------------------------

std::atomic<Observer> observer = nullptr;
thread_local bool is_told = false; // of the call that runs

template <typename Aten, auto kernel, typename Schema = typename Aten::schema>
struct Observed;

template <typename Aten, auto kernel, typename Result, typename... Args>
struct Observed<Aten, kernel, Result(Args...)> {
  static Result call(DispatchKeySet keys, Args... args) {
    const auto observe = observer.load(std::memory_order_relaxed);
    return C10_LIKELY(!observe) || is_told ? kernel(keys, args...) : tell(observe, keys, args...);
  }

  static Result tell(Observer observe, DispatchKeySet keys, Args... args) {
    const auto then = observe(Aten::name, {c10::IValue(args)...});
    if (!then) {
      return kernel(keys, args...);
    }
    struct Told {
      Told() {
        is_told = true;
      }
      ~Told() {
        is_told = false;
      }
    };
    const auto run = [&]() -> Result {
      const Told told;
      return kernel(keys, args...);
    };
    if constexpr (std::is_void_v<Result>) {
      run();
      then({});
    } else {
      Result result = run();
      then(result);
      return result;
    }
  }
};

// ---- Under vmap ---------------------------------------------------------------------------------

template <typename Aten>
const c10::SafeKernelFunction* torchs_batched = nullptr;

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

// torch has no batching rule for clamp_, but loops over the samples. If a bound requires grad, so
// does x once its first sample is written: the others would have the gradient of an x that is being
// differentiated. And the samples are views, through which an outer vmap cannot write what it
// differentiates. Under a pin, the front door writes all of them at once, but where they share
// memory, which torch writes sample by sample only, or have no room for the result, where torch
// words the error.
template <typename Aten, typename Bound>
Tensor& batched_clamp_(DispatchKeySet keys, Tensor& self, const Bound& min, const Bound& max) {
  const auto c = current();
  const auto* batched = at::functorch::maybeGetBatchedImpl(self);
  const auto is_larger = [&](const Tensor& bound) { return bound.dim() > self.dim(); };
  const bool fits = batched && !any_tensor(is_larger, min) && !any_tensor(is_larger, max);
  if (!c || !is_recorded(self, min, max) || !fits || may_share_memory(batched->value())) {
    torch::jit::Stack stack = {self, min, max};
    torchs_batched<Aten>->callBoxed(torchs_batched<Aten>->opHandle(), keys, &stack);
    return self;
  }
  return front_door::clamp_(self, guarded(min), guarded(max), *c);
}

// ---- Registration -------------------------------------------------------------------------------

struct Registration {
  std::vector<std::string> names; // "aten::clamp.Tensor"
  std::vector<torch::Library> libraries; // one per operator and key
  std::vector<std::pair<std::string, const std::atomic<int64_t>*>> counts;

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

#define CLAMPGRAD_FOREACH(kind, name)                     \
  add_each<aten::_foreach_##name##_Scalar, Kind::kind>(); \
  add_each<aten::_foreach_##name##_List, Kind::kind>();   \
  add_each<aten::_foreach_##name##_ScalarList, Kind::kind>();
    CLAMPGRAD_FOREACH(clamp, clamp_min)
    CLAMPGRAD_FOREACH(clamp, clamp_min_)
    CLAMPGRAD_FOREACH(clamp, clamp_max)
    CLAMPGRAD_FOREACH(clamp, clamp_max_)
    CLAMPGRAD_FOREACH(extremum, maximum)
    CLAMPGRAD_FOREACH(extremum, maximum_)
    CLAMPGRAD_FOREACH(extremum, minimum)
    CLAMPGRAD_FOREACH(extremum, minimum_)
#undef CLAMPGRAD_FOREACH

    add_batched<aten::clamp_, Number>();
    add_batched<aten::clamp__Tensor, OptionalTensor>();
  }

  template <typename Aten>
  static c10::OperatorHandle find() {
    return c10::Dispatcher::singleton().findSchemaOrThrow(Aten::name, Aten::overload_name);
  }

  template <typename Function>
  void add_at(DispatchKey key, const c10::OperatorHandle& op, Function function) {
    libraries.emplace_back(torch::Library::IMPL, "aten", key, __FILE__, __LINE__)
        .impl(c10::toString(op.operator_name()).c_str(), function);
  }

  template <typename Aten, typename Function>
  void add(Function function) {
    const auto op = find<Aten>();
    for (const auto key : c10::getRuntimeDispatchKeySet(DispatchKey::Autograd)) {
      if (key == DispatchKey::AutogradOther) {
        continue; // see to_torchs_own
      }
      // Replacing it would leave nothing to call without a pin; keeping it would leave it unpinned.
      TORCH_CHECK(
          !op.hasKernelForDispatchKey(key),
          "clampgrad.pin: ",
          op.operator_name(),
          " has an autograd kernel of its own at ",
          key,
          ", which a pin cannot reach");
      add_at(key, op, function);
    }
    names.push_back(c10::toString(op.operator_name()));
  }

  template <typename Aten, typename Bound>
  void add_batched() {
    constexpr auto key = DispatchKey::FuncTorchBatched;
    const auto op = find<Aten>();
    torchs_batched<Aten> = new c10::SafeKernelFunction(op.getComputedKernelForDispatchKey(key));
    add_at(key, op, TORCH_FN((batched_clamp_<Aten, Bound>)));
  }

  template <
      typename Aten,
      typename Kernel<typename Aten::schema>::Door front_door,
      Kind kind = Kind::clamp>
  void add_one() {
    using Of = Kernel<typename Aten::schema>;
    add<Aten>(TORCH_FN((Observed<Aten, &Of::template call<Aten, front_door, kind>>::call)));
    counts.emplace_back(names.back(), &reached<Aten>);
  }

  template <typename Aten, Kind kind>
  void add_each() {
    using Of = Kernel<typename Aten::schema>;
    add<Aten>(TORCH_FN((Observed<Aten, &Of::template call_for_each<Aten, kind>>::call)));
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

void observe_with(Observer function) {
  observer.store(function, std::memory_order_relaxed);
}

} // namespace clampgrad::pin
