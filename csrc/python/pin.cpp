#include "python/parts.h"

#include "pin/pin.h"
#include "python/text.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

namespace clampgrad::pin {

namespace {

// kept for good: a thread may ask while Python ends
PyObject* function_to_ask = nullptr;

Code ask() {
  const py::gil_scoped_acquire gil;
  return py::cast<Code>(py::reinterpret_borrow<py::object>(function_to_ask)());
}

void pin_ask(py::object function) {
  Py_XDECREF(std::exchange(function_to_ask, function.release().ptr()));
  ask_with(&ask);
}

Code pin_code(py::object gradient, bool maximize) {
  return code_of(
      gradient.is_none() ? std::nullopt : std::optional(text_of(gradient.ptr())), maximize);
}

} // namespace

void add_functions(PyObject* module_) {
  auto module = py::reinterpret_borrow<py::module>(module_);
  module.def("pin_code", torch::wrap_pybind_function(&pin_code));
  module.def("pin_name", torch::wrap_pybind_function(&name_of));
  module.def("pin_thread", torch::wrap_pybind_function(&set_in_thread));
  module.def("pin_process", torch::wrap_pybind_function(&set_in_process));
  module.def("pin_current", torch::wrap_pybind_function(&current));
  module.def("pin_ask", torch::wrap_pybind_function(&pin_ask));
  module.def("pin_register", torch::wrap_pybind_function(&register_kernels));
}

} // namespace clampgrad::pin
