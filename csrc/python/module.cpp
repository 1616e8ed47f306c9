// clampgrad._C, put together from its parts: functions.cpp, pin_bindings.cpp and observer.cpp.

#include "python/module.h"

#include "base/bounds.h"
#include "stamp.h" // generated

namespace clampgrad {

// The Python types of the autograd nodes, in the generated python_functions.cpp.
namespace autograd {
void add_node_types(PyObject* module);
}

namespace {

at::Scalar guard_in_python(const at::Scalar& bound) {
  const py::gil_scoped_acquire gil;
  const auto guard =
      py::module_::import("clampgrad._torch.surroundings").attr("guard_dynamic_floats");
  if (bound.isFloatingPoint()) {
    return guard(bound.toSymFloat()).cast<c10::SymFloat>();
  }
  return guard(bound.toSymInt()).cast<c10::SymInt>();
}

} // namespace
} // namespace clampgrad

PyMODINIT_FUNC PyInit__C() {
  static PyModuleDef definition = {
      PyModuleDef_HEAD_INIT, "clampgrad._C", nullptr, -1, clampgrad::function_methods};
  PyObject* module = PyModule_Create(&definition);
  if (module) {
    clampgrad::autograd::add_node_types(module);
    auto wrapped = py::reinterpret_borrow<py::module>(module);
    clampgrad::add_pin(wrapped);
    clampgrad::add_observer(wrapped);
    clampgrad::set_symbol_guard(&clampgrad::guard_in_python);
    // As csrc/base/stamp.cpp has it: this file can be another build's too.
    PyModule_AddStringConstant(module, "stamp", clampgrad::kStamp);
  }
  return module;
}
