// clampgrad._C: the functions that python/clampgrad/functional.py documents.
//
// What is common (plain Tensors, Python numbers) is read by hand; the rest goes to torch's own
// argument parser, which knows every kind of number, __torch_function__, and how to word an error.

#include "base/convention.h"
#include "pin/pin.h"
#include "python/operators.h"
#include "python/stamp.h"

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

size_t parameter_of(const Operator& op, PyObject* keyword) {
  for (size_t p = 0; p < kParameters; ++p) {
    if (op.parameters[p] && PyUnicode_CompareWithASCIIString(keyword, op.parameters[p]) == 0) {
      return p;
    }
  }
  const auto name = text_of(keyword);
  TORCH_CHECK_TYPE(false, op.name, "() got an unexpected keyword argument '", name, "'");
}

// The arguments of a call by parameter, null where there is none.
struct Given {
  PyObject* at[kParameters] = {};
  size_t positional;
  Gradient gradient;

  Given(const Operator& op, PyObject* const* args, size_t count, PyObject* keywords)
      : positional(count) {
    const size_t most = 1 + op.bounds();
    TORCH_CHECK_TYPE(count <= most, op.name, "() takes at most ", most, " positional arguments");
    std::copy_n(args, count, at);
    for (Py_ssize_t i = 0; keywords && i < PyTuple_GET_SIZE(keywords); ++i) {
      const auto p = parameter_of(op, PyTuple_GET_ITEM(keywords, i));
      TORCH_CHECK_TYPE(
          !at[p], op.name, "() got multiple values for argument '", op.parameters[p], "'");
      at[p] = args[count + i];
    }
    // A wrong name is said before anything else.
    const auto name = at[kGradient] ? text_of(at[kGradient]) : name_of(Gradient::min_norm);
    const bool maximize = at[kMaximize] == Py_True;
    gradient = op.is_clamp() ? parse_convention(name, maximize).gradient
                             : parse_exact(name, maximize, op.name);
  }

  bool has(Parameter p) const {
    return at[p] && at[p] != Py_None;
  }
  bool has_tensor(Parameter p) const {
    return at[p] && THPVariable_Check(at[p]);
  }
};

// Reads nothing, None, a plain Python number or a plain Tensor; false for anything else.
bool read_bound(PyObject* object, Bound& bound) {
  if (!object || object == Py_None) {
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
  PyObject* const maximize = given.at[kMaximize];
  if (!given.at[kInput] || !THPVariable_CheckExact(given.at[kInput]) ||
      at::impl::torch_function_mode_enabled() || (maximize && !PyBool_Check(maximize)) ||
      given.has(kOut) || (op.bounds() == 1 && !given.has(kFirst))) {
    return false;
  }
  for (int i = 0; i < op.bounds(); ++i) {
    if (!read_bound(given.at[kFirst + i], call.bounds[i])) {
      return false;
    }
  }
  call.gradient = given.gradient;
  call.maximize = maximize == Py_True;
  call.self = THPVariable_Unpack(given.at[kInput]);
  return op.is_clamp() || call.bounds[0].tensor; // an extremum has no numbers
}

std::vector<std::string> signatures(const Operator& op, bool tensors) {
  const auto* const* all = op.signatures;
  if (!all[1] || !tensors) {
    return {all[0]};
  }
  return {all + 1, std::find(all + 1, std::end(op.signatures), nullptr)};
}

PyObject* finish(const Operator& op, Call& call) {
  Tensor result;
  {
    pybind11::gil_scoped_release no_gil;
    result = op.run(call);
  }
  return THPVariable_Wrap(std::move(result)); // in place and out=: the object that was given
}

PyObject* run_parsed(
    const Operator& op, const Given& given, PyObject* module, torch::PythonArgParser& parser) {
  py::tuple positional(given.positional);
  py::dict keywords; // with the gradient, which a graph of torch.fx then names
  keywords["gradient"] = name_of(given.gradient);
  for (size_t p = 0; p < kParameters; ++p) {
    if (p < given.positional) {
      positional[p] = py::handle(given.at[p]);
    } else if (given.at[p]) {
      keywords[op.parameters[p]] = py::handle(given.at[p]);
    }
  }
  torch::ParsedArgs<kParameters> parsed;
  auto r = parser.parse(nullptr, positional.ptr(), keywords.ptr(), parsed);
  if (r.has_torch_function()) {
    const auto function = py::handle(module).attr(op.name);
    return torch::handle_torch_function_no_python_arg_parser(
        r.overloaded_args, positional.ptr(), keywords.ptr(), op.name, function.ptr(), "clampgrad");
  }
  Call call;
  int next = 0; // in the order of Parameter
  call.self = r.tensor(next++);
  for (int i = 0; i < op.bounds(); ++i, ++next) {
    call.bounds[i] = r.isNone(next)       ? Bound()
        : THPVariable_Check(r.args[next]) ? Bound(r.tensor(next))
                                          : Bound(r.scalar(next));
  }
  call.gradient = given.gradient;
  ++next; // which is the gradient
  call.maximize = op.is_clamp() && r.toBool(next++);
  if (op.parameters[kOut] && !r.isNone(next)) {
    call.out = r.tensor(next);
  }
  return finish(op, call);
}

template <size_t i>
PyObject* entry(PyObject* module, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  HANDLE_TH_ERRORS
  constexpr const Operator& op = kOperators[i];
  const Given given(op, args, count, keywords);
  if (Call call; read_plain(op, given, call)) {
    return finish(op, call);
  }
  static torch::PythonArgParser numbers(signatures(op, /*tensors=*/false), /*traceable=*/false);
  static torch::PythonArgParser tensors(signatures(op, /*tensors=*/true), /*traceable=*/false);
  const bool of_tensors = given.has_tensor(kFirst) || given.has_tensor(kSecond);
  return run_parsed(op, given, module, of_tensors ? tensors : numbers);
  END_HANDLE_TH_ERRORS
}

// The last one, empty, ends the table. A METH_FASTCALL function is cast to the type of the others
// by definition of the C API.
template <size_t... i>
PyMethodDef* methods(std::index_sequence<i...>) {
  static PyMethodDef table[kCount + 1] = {
      {kOperators[i].name,
       reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&entry<i>)),
       METH_FASTCALL | METH_KEYWORDS,
       nullptr}...};
  return table;
}

// ---- What python/clampgrad/_pin/pin.py calls --------------------------------------------------------

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
  module.def("pin_reached", torch::wrap_pybind_function(&pin::calls_reached));
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
    // Read from the file too, by python/clampgrad/_implementation/stamp.py.
    PyModule_AddStringConstant(module, "stamp", clampgrad::kStamp);
  }
  return module;
}
