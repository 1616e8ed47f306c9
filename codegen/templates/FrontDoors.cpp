// The callers of the front doors (csrc/ops/front_doors.h): the functions for C++ and Python, and
// the kernels for the dispatcher, which get the name of a convention.

#include "Kernels.h"
#include "Operators.h"
#include "base/path.h"
#include "clampgrad/overload.h"
#include "ops/front_doors.h"
#include "ops/mixed.h"

#include <ATen/SequenceNumber.h>
#include <ATen/TracerMode.h>
#include <ATen/record_function.h>

namespace clampgrad {

namespace {

// Tells the profiler what the dispatcher would: the name and arguments of the call, and the number
// of the node that it makes. If no gradient is recorded, the profiler sees only aten's operator.
class Profiled {
 public:
  template <typename... Args>
  explicit Profiled(const char* name, const Args&... args) {
    auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION);
    if (C10_UNLIKELY(callbacks && any_may_need_gradient(args...))) {
      const std::vector<c10::IValue> inputs = {value(args)...};
      record_.emplace(std::move(*callbacks));
      record_->before(name, &inputs, static_cast<int64_t>(at::sequence_number::peek()));
    }
  }

 private:
  template <typename Arg>
  static c10::IValue value(const Arg& arg) {
    return arg;
  }
  static c10::IValue value(std::string_view arg) {
    return std::string(arg);
  }

  std::optional<at::RecordFunction> record_; // empty if nobody profiles, as in the dispatcher
};

} // namespace

// ---- The functions for C++, which Python calls too ----------------------------------------------
// With plain Tensors, the dispatcher would call autograd and nothing else. The front door records the
// call by hand, so it is called directly.

${api_definitions}

// ---- The kernels of the operators ---------------------------------------------------------------

namespace native {

${operator_kernels}

} // namespace native
} // namespace clampgrad
