#include "python/pin.h"

#include "pin/pin.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

namespace clampgrad::pin {

void add_functions(PyObject* module_) {
  auto module = py::reinterpret_borrow<py::module>(module_);
  module.def("pin_code", torch::wrap_pybind_function(&code_of));
  module.def("pin_name", torch::wrap_pybind_function(&name_of));
  module.def("pin_thread", torch::wrap_pybind_function(&set_in_thread));
  module.def("pin_process", torch::wrap_pybind_function(&set_in_process));
  module.def("pin_current", torch::wrap_pybind_function(&current));
  module.def("pin_operators", torch::wrap_pybind_function(&pinned_operators));
}

} // namespace clampgrad::pin
