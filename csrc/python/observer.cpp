// Observed calls (csrc/pin/pin.h) for python/clampgrad/_tools/audit/observer.py: calls a function
// in Python before each, and the function that it returns with the result.

#include "pin/pin.h"
#include "python/module.h"

#include <c10/util/irange.h>

namespace clampgrad {
namespace {

PyObject* observer = nullptr; // guarded by the GIL

py::object to_python(const c10::IValue& value) {
  if (value.isTensor()) {
    return py::cast(value.toTensor());
  }
  if (value.isNone()) {
    return py::none();
  }
  if (!value.isList()) {
    return py::cast(value.toScalar()); // isScalar() is false for what only uint64 has
  }
  py::list list;
  for (const c10::IValue& each : value.toListRef()) {
    list.append(to_python(each));
  }
  return list;
}

pin::ResultObserver call_observer(const char* name, const std::vector<c10::IValue>& args) {
  const py::gil_scoped_acquire gil;
  if (!observer) {
    return {};
  }
  py::tuple arguments(args.size());
  for (const auto i : c10::irange(args.size())) {
    arguments[i] = to_python(args[i]);
  }
  auto result_observer = py::handle(observer)(name, arguments);
  if (result_observer.is_none()) {
    return {};
  }
  const std::shared_ptr<PyObject> held(result_observer.release().ptr(), [](PyObject* object) {
    const py::gil_scoped_acquire gil;
    Py_DECREF(object);
  });
  return [held](const c10::IValue& result) {
    const py::gil_scoped_acquire gil;
    py::handle(held.get())(to_python(result));
  };
}

void pin_observe(py::object function) {
  const bool observes = !function.is_none();
  Py_XDECREF(std::exchange(observer, observes ? function.release().ptr() : nullptr));
  pin::set_observer(observes ? &call_observer : nullptr);
}

} // namespace

void add_observer(py::module& module) {
  module.def("pin_observe", &pin_observe);
}

} // namespace clampgrad
