// clampgrad._C: positional entry points for the typed functions in python/clampgrad/functional.py.
//
// What is common (plain Tensors, Python numbers) is read by hand; the rest goes to torch's own
// argument parser, which knows every kind of number, __torch_function__, and how to word an error.

#include "base/convention.h"
#include "pin/pin.h"
#include "python/operators.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/python_arg_parser.h>

#include <algorithm>
#include <utility>

namespace clampgrad {

// The Python types of the autograd nodes, in the generated python_functions.cpp.
namespace autograd {
void add_node_types(PyObject* module);
}

namespace {

using at::Tensor;

constexpr size_t kCount = std::size(kOperators);

// The name of a convention as Python gives it: a str, also of a class derived from it. Torch's own
// parser and pybind11 take bytes too. Valid while the object is.
std::string_view text_of(PyObject* gradient) {
  TORCH_CHECK_TYPE(
      PyUnicode_Check(gradient), "gradient must be a str, not ", Py_TYPE(gradient)->tp_name);
  Py_ssize_t length = 0;
  if (const char* text = PyUnicode_AsUTF8AndSize(gradient, &length)) {
    return {text, static_cast<size_t>(length)};
  }
  PyErr_Clear(); // a lone surrogate, as os.environ has for what is not UTF-8
  return "(not UTF-8)";
}

// The arguments as they come: of a clamp (input, min, max, gradient, maximize, out), of an extremum
// (input, other, gradient, out).
struct Given {
  PyObject* self;
  PyObject* bounds[2];
  std::string_view gradient;
  PyObject *name, *maximize, *out;

  Given(const Operator& op, PyObject* const* args, Py_ssize_t count) {
    const Py_ssize_t expected = op.is_clamp() ? 6 : 4;
    TORCH_CHECK_TYPE(count == expected, "expected ", expected, " arguments, got ", count);
    self = args[0];
    bounds[0] = args[op.takes == Takes::max ? 2 : 1];
    bounds[1] = op.takes == Takes::min_and_max ? args[2] : Py_None;
    name = args[expected == 6 ? 3 : 2];
    gradient = text_of(name);
    maximize = op.is_clamp() ? args[4] : Py_False;
    out = args[expected - 1];
  }
};

// Reads None, a plain Python number or a plain Tensor; false for anything else.
bool read_bound(PyObject* object, Bound& bound) {
  if (object == Py_None) {
    return true;
  }
  if (THPVariable_CheckExact(object)) {
    bound.tensor = THPVariable_Unpack(object);
    return true;
  }
  if (PyFloat_CheckExact(object)) {
    bound.number = PyFloat_AS_DOUBLE(object);
    return true;
  }
  if (PyLong_CheckExact(object)) {
    int overflow = 0;
    bound.number = static_cast<int64_t>(PyLong_AsLongLongAndOverflow(object, &overflow));
    return overflow == 0;
  }
  return false;
}

bool read_plain(const Operator& op, const Given& given, Call& call) {
  if (!THPVariable_CheckExact(given.self) || at::impl::torch_function_mode_enabled() ||
      !PyBool_Check(given.maximize) || given.out != Py_None) {
    return false;
  }
  if (op.takes != Takes::min_and_max && given.bounds[0] == Py_None) {
    return false;
  }
  for (int i = 0; i < op.bounds(); ++i) {
    if (!read_bound(given.bounds[i], call.bounds[i])) {
      return false;
    }
  }
  if (!op.is_clamp() && !call.bounds[0].tensor) {
    return false;
  }
  call.maximize = given.maximize == Py_True;
  call.gradient = parse_convention(given.gradient, call.maximize).gradient;
  call.self = THPVariable_Unpack(given.self);
  return true;
}

std::vector<std::string> signatures(const Operator& op, bool tensors) {
  const auto* const* all = op.signatures;
  if (!all[1] || !tensors) {
    return {all[0]};
  }
  return {all + 1, std::find(all + 1, std::end(op.signatures), nullptr)};
}

THPObjectPtr checked(PyObject* object) {
  if (!object) {
    throw python_error();
  }
  return THPObjectPtr(object);
}

// The arguments as the caller of the public function would have written them.
std::pair<THPObjectPtr, THPObjectPtr> public_arguments(const Operator& op, const Given& given) {
  auto positional = checked(
      op.bounds() == 2 ? PyTuple_Pack(3, given.self, given.bounds[0], given.bounds[1])
                       : PyTuple_Pack(2, given.self, given.bounds[0]));
  auto keywords = checked(PyDict_New());
  PyDict_SetItemString(keywords, "gradient", given.name);
  if (op.is_clamp()) {
    PyDict_SetItemString(keywords, "maximize", given.maximize);
  }
  if (given.out != Py_None) {
    PyDict_SetItemString(keywords, "out", given.out);
  }
  return {std::move(positional), std::move(keywords)};
}

PyObject* finish(const Operator& op, Call& call) {
  Tensor result;
  {
    pybind11::gil_scoped_release no_gil;
    result = op.run(call);
  }
  return THPVariable_Wrap(std::move(result)); // in place and out=: the object that was given
}

PyObject* run_parsed(const Operator& op, const Given& given, torch::PythonArgParser& parser) {
  torch::ParsedArgs<6> parsed;
  auto [positional, keywords] = public_arguments(op, given);
  auto r = parser.parse(nullptr, positional, keywords, parsed);
  if (r.has_torch_function()) {
    auto module = checked(PyImport_ImportModule("clampgrad"));
    auto function = checked(PyObject_GetAttrString(module, op.name));
    return torch::handle_torch_function_no_python_arg_parser(
        r.overloaded_args, positional, keywords, op.name, function, "clampgrad");
  }
  Call call;
  int next = 0;
  call.self = r.tensor(next++);
  for (int i = 0; i < op.bounds(); ++i, ++next) {
    call.bounds[i] = r.isNone(next)       ? Bound()
        : THPVariable_Check(r.args[next]) ? Bound(r.tensor(next))
                                          : Bound(r.scalar(next));
  }
  ++next; // the name, which is read already
  call.maximize = op.is_clamp() && r.toBool(next++);
  call.gradient = parse_convention(given.gradient, call.maximize).gradient;
  if (!op.inplace && !r.isNone(next)) {
    call.out = r.tensor(next);
  }
  return finish(op, call);
}

template <size_t i>
PyObject* entry(PyObject*, PyObject* const* args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  constexpr const Operator& op = kOperators[i];
  const Given given(op, args, count);
  if (Call call; read_plain(op, given, call)) {
    return finish(op, call);
  }
  if (THPVariable_Check(given.bounds[0]) || THPVariable_Check(given.bounds[1])) {
    static torch::PythonArgParser parser(signatures(op, /*tensors=*/true), /*traceable=*/false);
    return run_parsed(op, given, parser);
  }
  static torch::PythonArgParser parser(signatures(op, /*tensors=*/false), /*traceable=*/false);
  return run_parsed(op, given, parser);
  END_HANDLE_TH_ERRORS
}

// The last one, empty, ends the table. A METH_FASTCALL function is cast to the type of the others
// by definition of the C API.
template <size_t... i>
PyMethodDef* methods(std::index_sequence<i...>) {
  static PyMethodDef table[kCount + 1] = {
      {kOperators[i].name,
       reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&entry<i>)),
       METH_FASTCALL,
       nullptr}...};
  return table;
}

// ---- What python/clampgrad/_pin.py calls --------------------------------------------------------

// Kept for good: a thread may ask while Python ends
PyObject* function_to_ask = nullptr;

pin::Code ask() {
  const py::gil_scoped_acquire gil;
  return py::cast<pin::Code>(py::reinterpret_borrow<py::object>(function_to_ask)());
}

void pin_ask(py::object function) {
  Py_XDECREF(std::exchange(function_to_ask, function.release().ptr()));
  pin::ask_with(&ask);
}

pin::Code pin_code(py::object gradient, bool maximize) {
  return pin::code_of(
      gradient.is_none() ? std::nullopt : std::optional(text_of(gradient.ptr())), maximize);
}

void add_pin(PyObject* module_) {
  auto module = py::reinterpret_borrow<py::module>(module_);
  module.def("pin_code", torch::wrap_pybind_function(&pin_code));
  module.def("pin_name", torch::wrap_pybind_function(&pin::name_of));
  module.def("pin_thread", torch::wrap_pybind_function(&pin::set_in_thread));
  module.def("pin_process", torch::wrap_pybind_function(&pin::set_in_process));
  module.def("pin_current", torch::wrap_pybind_function(&pin::current));
  module.def("pin_ask", torch::wrap_pybind_function(&pin_ask));
  module.def("pin_register", torch::wrap_pybind_function(&pin::register_kernels));
}

} // namespace
} // namespace clampgrad

PyMODINIT_FUNC PyInit__C() {
  auto* const methods = clampgrad::methods(std::make_index_sequence<clampgrad::kCount>());
  static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "clampgrad._C", nullptr, -1, methods};
  PyObject* module = PyModule_Create(&definition);
  if (module) {
    clampgrad::autograd::add_node_types(module);
    clampgrad::add_pin(module);
  }
  return module;
}
