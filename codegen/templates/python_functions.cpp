// Python types of the autograd nodes.

#include "Functions.h"

#include <torch/csrc/autograd/python_cpp_function.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

namespace clampgrad::autograd {
namespace {

template <typename Node>
void addClass(PyObject* module, PyTypeObject& type, const char* name, PyGetSetDef* properties) {
  torch::autograd::_initFunctionPyTypeObject(type, name, properties, nullptr);
  Py_INCREF(&type);
  PyModule_AddObject(module, name, reinterpret_cast<PyObject*>(&type));
  torch::autograd::registerCppFunction(typeid(Node), &type);
}

${python_getters}

} // namespace

void add_node_types(PyObject* module) {
  ${python_types}
}

} // namespace clampgrad::autograd
