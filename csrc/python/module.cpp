// clampgrad._C: positional entry points for the typed functions in python/clampgrad/functional.py.
//
// What is common (a plain Tensor, Python numbers) is read by hand; the rest goes to torch's own
// argument parser, which knows every kind of number, __torch_function__, and how to word an error.

#include "Kernels.h"
#include "Operators.h"
#include "ops/number.h"
#include "ops/path.h"
#include "python/nodes.h"
#include "python/pin.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/python_arg_parser.h>

namespace clampgrad {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

enum class Op { clamp, clamp_min, clamp_max };

struct Call {
  Tensor self;
  Number min, max;
  std::string_view gradient;
  bool maximize;
};

constexpr Py_ssize_t kArguments = 6; // input, min, max, gradient, maximize, out

// Reads None or a plain Python number; false for anything else.
bool read_number(PyObject* object, Number& number) {
  if (object == Py_None) {
    return true;
  }
  if (PyFloat_CheckExact(object)) {
    number = PyFloat_AS_DOUBLE(object);
    return true;
  }
  if (PyLong_CheckExact(object)) {
    int overflow = 0;
    number = static_cast<int64_t>(PyLong_AsLongLongAndOverflow(object, &overflow));
    return overflow == 0;
  }
  return false;
}

bool read_plain(PyObject* const* args, Call& call) {
  if (!THPVariable_CheckExact(args[0]) || at::impl::torch_function_mode_enabled() ||
      !PyUnicode_CheckExact(args[3]) || !PyBool_Check(args[4]) || args[5] != Py_None ||
      !read_number(args[1], call.min) || !read_number(args[2], call.max)) {
    return false;
  }
  Py_ssize_t length = 0;
  const char* name = PyUnicode_AsUTF8AndSize(args[3], &length);
  if (!name) {
    throw python_error();
  }
  call.self = THPVariable_Unpack(args[0]);
  call.gradient = {name, static_cast<size_t>(length)};
  call.maximize = args[4] == Py_True;
  return true;
}

template <Op op>
Tensor run(const Call& c) {
  if (!is_plain(c.self)) { // a mode is to see the operator
    if constexpr (op == Op::clamp) {
      return _ops::clamp::call(c.self, c.min, c.max, c.gradient, c.maximize);
    } else if constexpr (op == Op::clamp_min) {
      return _ops::clamp_min::call(c.self, c.min.value(), c.gradient, c.maximize);
    } else {
      return _ops::clamp_max::call(c.self, c.max.value(), c.gradient, c.maximize);
    }
  }
  if constexpr (op == Op::clamp) {
    return native::clamp(c.self, c.min, c.max, c.gradient, c.maximize);
  } else if constexpr (op == Op::clamp_min) {
    return native::clamp_min(c.self, c.min.value(), c.gradient, c.maximize);
  } else {
    return native::clamp_max(c.self, c.max.value(), c.gradient, c.maximize);
  }
}

template <Op op>
void run_(Call& c) {
  if constexpr (op == Op::clamp) {
    _ops::clamp_::call(c.self, c.min, c.max, c.gradient, c.maximize);
  } else if constexpr (op == Op::clamp_min) {
    _ops::clamp_min_::call(c.self, c.min.value(), c.gradient, c.maximize);
  } else {
    _ops::clamp_max_::call(c.self, c.max.value(), c.gradient, c.maximize);
  }
}

template <Op op>
void run_out(const Call& c, Tensor& out) {
  if constexpr (op == Op::clamp) {
    _ops::clamp_out::call(c.self, c.min, c.max, c.gradient, c.maximize, out);
  } else if constexpr (op == Op::clamp_min) {
    _ops::clamp_min_out::call(c.self, c.min.value(), c.gradient, c.maximize, out);
  } else {
    _ops::clamp_max_out::call(c.self, c.max.value(), c.gradient, c.maximize, out);
  }
}

template <Op op>
constexpr const char* name_of(bool inplace) {
  return op == Op::clamp    ? (inplace ? "clamp_" : "clamp")
      : op == Op::clamp_min ? (inplace ? "clamp_min_" : "clamp_min")
                            : (inplace ? "clamp_max_" : "clamp_max");
}

template <Op op>
std::string signature(bool inplace) {
  const char* bounds = op == Op::clamp ? "Scalar? min=None, Scalar? max=None"
      : op == Op::clamp_min            ? "Scalar min"
                                       : "Scalar max";
  const char* out = inplace ? "" : ", Tensor out=None";
  return std::string(name_of<op>(inplace)) + "(Tensor input, " + bounds +
      ", *, std::string_view gradient=\"min_norm\", bool maximize=False" + out + ")";
}

THPObjectPtr checked(PyObject* object) {
  if (!object) {
    throw python_error();
  }
  return THPObjectPtr(object);
}

// The arguments as the caller of the public function would have written them.
template <Op op>
std::pair<THPObjectPtr, THPObjectPtr> public_arguments(PyObject* const* args) {
  auto positional = checked(
      op == Op::clamp           ? PyTuple_Pack(3, args[0], args[1], args[2])
          : op == Op::clamp_min ? PyTuple_Pack(2, args[0], args[1])
                                : PyTuple_Pack(2, args[0], args[2]));
  auto keywords = checked(PyDict_New());
  PyDict_SetItemString(keywords, "gradient", args[3]);
  PyDict_SetItemString(keywords, "maximize", args[4]);
  if (args[5] != Py_None) {
    PyDict_SetItemString(keywords, "out", args[5]);
  }
  return {std::move(positional), std::move(keywords)};
}

PyObject* call_torch_function(
    const torch::PythonArgs& r, const char* name, PyObject* positional, PyObject* keywords) {
  auto module = checked(PyImport_ImportModule("clampgrad"));
  auto function = checked(PyObject_GetAttrString(module, name));
  return torch::handle_torch_function_no_python_arg_parser(
      r.overloaded_args, positional, keywords, name, function, "clampgrad");
}

template <Op op, bool inplace>
PyObject* run_parsed(PyObject* const* args) {
  static torch::PythonArgParser parser({signature<op>(inplace)}, /*traceable=*/false);
  torch::ParsedArgs<6> parsed;
  auto [positional, keywords] = public_arguments<op>(args);
  auto r = parser.parse(nullptr, positional, keywords, parsed);
  if (r.has_torch_function()) {
    return call_torch_function(r, name_of<op>(inplace), positional, keywords);
  }
  constexpr int keyword = op == Op::clamp ? 3 : 2; // index of the first keyword argument
  Call call;
  call.self = r.tensor(0);
  if constexpr (op == Op::clamp) {
    call.min = r.scalarOptional(1);
    call.max = r.scalarOptional(2);
  } else {
    (op == Op::clamp_min ? call.min : call.max) = r.scalar(1);
  }
  call.gradient = r.stringView(keyword);
  call.maximize = r.toBool(keyword + 1);
  if constexpr (inplace) {
    pybind11::gil_scoped_release no_gil;
    run_<op>(call);
  } else if (!r.isNone(keyword + 2)) {
    auto out = r.tensor(keyword + 2);
    {
      pybind11::gil_scoped_release no_gil;
      run_out<op>(call, out);
    }
    return THPVariable_Wrap(out);
  } else {
    Tensor result;
    {
      pybind11::gil_scoped_release no_gil;
      result = run<op>(call);
    }
    return THPVariable_Wrap(result);
  }
  Py_INCREF(args[0]);
  return args[0];
}

// ---- Tensors ------------------------------------------------------------------------------------

struct TensorCall {
  Tensor self;
  OptionalTensor min, max;
  Number number; // in place of the bound that is none
  std::string_view gradient;
  bool maximize;
};

template <Op op>
Tensor run(const TensorCall& c) {
  if constexpr (op == Op::clamp_min) {
    return _ops::clamp_min_Tensor::call(c.self, *c.min, c.gradient, c.maximize);
  } else if constexpr (op == Op::clamp_max) {
    return _ops::clamp_max_Tensor::call(c.self, *c.max, c.gradient, c.maximize);
  } else if (!c.number) {
    return _ops::clamp_Tensor::call(c.self, c.min, c.max, c.gradient, c.maximize);
  } else if (c.min) {
    return _ops::clamp_Tensor_Scalar::call(c.self, *c.min, *c.number, c.gradient, c.maximize);
  } else {
    return _ops::clamp_Scalar_Tensor::call(c.self, *c.number, *c.max, c.gradient, c.maximize);
  }
}

template <Op op>
void run_(TensorCall& c) {
  if constexpr (op == Op::clamp_min) {
    _ops::clamp_min__Tensor::call(c.self, *c.min, c.gradient, c.maximize);
  } else if constexpr (op == Op::clamp_max) {
    _ops::clamp_max__Tensor::call(c.self, *c.max, c.gradient, c.maximize);
  } else if (!c.number) {
    _ops::clamp__Tensor::call(c.self, c.min, c.max, c.gradient, c.maximize);
  } else if (c.min) {
    _ops::clamp__Tensor_Scalar::call(c.self, *c.min, *c.number, c.gradient, c.maximize);
  } else {
    _ops::clamp__Scalar_Tensor::call(c.self, *c.number, *c.max, c.gradient, c.maximize);
  }
}

template <Op op>
void run_out(const TensorCall& c, Tensor& out) {
  if constexpr (op == Op::clamp_min) {
    _ops::clamp_min_Tensor_out::call(c.self, *c.min, c.gradient, c.maximize, out);
  } else if constexpr (op == Op::clamp_max) {
    _ops::clamp_max_Tensor_out::call(c.self, *c.max, c.gradient, c.maximize, out);
  } else if (!c.number) {
    _ops::clamp_Tensor_out::call(c.self, c.min, c.max, c.gradient, c.maximize, out);
  } else if (c.min) {
    _ops::clamp_Tensor_Scalar_out::call(c.self, *c.min, *c.number, c.gradient, c.maximize, out);
  } else {
    _ops::clamp_Scalar_Tensor_out::call(c.self, *c.number, *c.max, c.gradient, c.maximize, out);
  }
}

template <Op op>
std::vector<std::string> tensor_signatures(bool inplace) {
  std::vector<std::string> bounds;
  if (op == Op::clamp) {
    bounds = {
        "Tensor? min=None, Tensor? max=None", "Tensor min, Scalar max", "Scalar min, Tensor max"};
  } else {
    bounds = {op == Op::clamp_min ? "Tensor min" : "Tensor max"};
  }
  std::vector<std::string> signatures;
  for (const auto& b : bounds) {
    signatures.push_back(
        std::string(name_of<op>(inplace)) + "(Tensor input, " + b +
        ", *, std::string_view gradient=\"min_norm\", bool maximize=False" +
        (inplace ? "" : ", Tensor out=None") + ")");
  }
  return signatures;
}

template <Op op, bool inplace>
PyObject* run_tensors(PyObject* const* args) {
  static torch::PythonArgParser parser(tensor_signatures<op>(inplace), /*traceable=*/false);
  torch::ParsedArgs<6> parsed;
  auto [positional, keywords] = public_arguments<op>(args);
  auto r = parser.parse(nullptr, positional, keywords, parsed);
  if (r.has_torch_function()) {
    return call_torch_function(r, name_of<op>(inplace), positional, keywords);
  }
  constexpr int keyword = op == Op::clamp ? 3 : 2;
  TensorCall call;
  call.self = r.tensor(0);
  if constexpr (op == Op::clamp) {
    const bool number_min = r.idx == 2, number_max = r.idx == 1;
    call.min = number_min ? std::nullopt : r.optionalTensor(1);
    call.max = number_max ? std::nullopt : r.optionalTensor(2);
    call.number = number_min || number_max ? Number(r.scalar(number_min ? 1 : 2)) : std::nullopt;
  } else {
    (op == Op::clamp_min ? call.min : call.max) = r.tensor(1);
  }
  call.gradient = r.stringView(keyword);
  call.maximize = r.toBool(keyword + 1);
  if constexpr (inplace) {
    pybind11::gil_scoped_release no_gil;
    run_<op>(call);
  } else if (!r.isNone(keyword + 2)) {
    auto out = r.tensor(keyword + 2);
    {
      pybind11::gil_scoped_release no_gil;
      run_out<op>(call, out);
    }
    return THPVariable_Wrap(out);
  } else {
    Tensor result;
    {
      pybind11::gil_scoped_release no_gil;
      result = run<op>(call);
    }
    return THPVariable_Wrap(result);
  }
  Py_INCREF(args[0]);
  return args[0];
}

enum class Pair { maximum, minimum, fmax, fmin };
constexpr const char* kPairNames[] = {"maximum", "minimum", "fmax", "fmin"};

template <Pair op>
Tensor run_pair(const Tensor& self, const Tensor& other, std::string_view gradient) {
  switch (op) {
    case Pair::maximum:
      return _ops::maximum::call(self, other, gradient, false);
    case Pair::minimum:
      return _ops::minimum::call(self, other, gradient, false);
    case Pair::fmax:
      return _ops::fmax::call(self, other, gradient, false);
    case Pair::fmin:
      return _ops::fmin::call(self, other, gradient, false);
  }
}

template <Pair op>
void run_pair_out(const Tensor& self, const Tensor& other, std::string_view gradient, Tensor& out) {
  switch (op) {
    case Pair::maximum:
      _ops::maximum_out::call(self, other, gradient, false, out);
      return;
    case Pair::minimum:
      _ops::minimum_out::call(self, other, gradient, false, out);
      return;
    case Pair::fmax:
      _ops::fmax_out::call(self, other, gradient, false, out);
      return;
    case Pair::fmin:
      _ops::fmin_out::call(self, other, gradient, false, out);
      return;
  }
}

// input, other, gradient, out
template <Pair op>
PyObject* pair_entry(PyObject*, PyObject* const* args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(count == 4, "expected 4 arguments, got ", count);
  constexpr auto name = kPairNames[static_cast<int>(op)];
  static torch::PythonArgParser parser(
      {std::string(name) +
       "(Tensor input, Tensor other, *, std::string_view gradient=\"min_norm\", Tensor out=None)"},
      /*traceable=*/false);
  torch::ParsedArgs<4> parsed;
  auto positional = checked(PyTuple_Pack(2, args[0], args[1]));
  auto keywords = checked(PyDict_New());
  PyDict_SetItemString(keywords, "gradient", args[2]);
  if (args[3] != Py_None) {
    PyDict_SetItemString(keywords, "out", args[3]);
  }
  auto r = parser.parse(nullptr, positional, keywords, parsed);
  if (r.has_torch_function()) {
    return call_torch_function(r, name, positional, keywords);
  }
  const auto self = r.tensor(0), other = r.tensor(1);
  const auto gradient = r.stringView(2);
  Tensor result;
  if (!r.isNone(3)) {
    result = r.tensor(3);
    pybind11::gil_scoped_release no_gil;
    run_pair_out<op>(self, other, gradient, result);
  } else {
    pybind11::gil_scoped_release no_gil;
    result = run_pair<op>(self, other, gradient);
  }
  return THPVariable_Wrap(result);
  END_HANDLE_TH_ERRORS
}

template <Op op, bool inplace>
PyObject* entry(PyObject*, PyObject* const* args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(count == kArguments, "expected ", kArguments, " arguments, got ", count);
  if (THPVariable_Check(args[1]) || THPVariable_Check(args[2])) {
    return run_tensors<op, inplace>(args);
  }
  Call call;
  const bool bounds_given = op == Op::clamp || (op == Op::clamp_min ? args[1] : args[2]) != Py_None;
  if (!bounds_given || !read_plain(args, call)) {
    return run_parsed<op, inplace>(args);
  }
  if constexpr (inplace) {
    {
      pybind11::gil_scoped_release no_gil;
      run_<op>(call);
    }
    Py_INCREF(args[0]);
    return args[0];
  } else {
    Tensor result;
    {
      pybind11::gil_scoped_release no_gil;
      result = run<op>(call);
    }
    return THPVariable_Wrap(std::move(result));
  }
  END_HANDLE_TH_ERRORS
}

template <Op op, bool inplace>
constexpr PyMethodDef method() {
  // A METH_FASTCALL function is cast to the type of the others by definition of the C API.
  return {
      name_of<op>(inplace),
      reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&entry<op, inplace>)),
      METH_FASTCALL,
      nullptr};
}

template <Pair op>
constexpr PyMethodDef pair_method() {
  return {
      kPairNames[static_cast<int>(op)],
      reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&pair_entry<op>)),
      METH_FASTCALL,
      nullptr};
}

PyModuleDef* definition() {
  static PyMethodDef methods[] = {
      method<Op::clamp, false>(),
      method<Op::clamp, true>(),
      method<Op::clamp_min, false>(),
      method<Op::clamp_min, true>(),
      method<Op::clamp_max, false>(),
      method<Op::clamp_max, true>(),
      pair_method<Pair::maximum>(),
      pair_method<Pair::minimum>(),
      pair_method<Pair::fmax>(),
      pair_method<Pair::fmin>(),
      {nullptr, nullptr, 0, nullptr}};
  static PyModuleDef module = {
      PyModuleDef_HEAD_INIT,
      "clampgrad._C",
      nullptr,
      -1,
      methods,
      nullptr,
      nullptr,
      nullptr,
      nullptr};
  return &module;
}

} // namespace
} // namespace clampgrad

PyMODINIT_FUNC PyInit__C() {
  PyObject* module = PyModule_Create(clampgrad::definition());
  if (module) {
    clampgrad::autograd::add_node_types(module);
    clampgrad::pin::add_functions(module);
  }
  return module;
}
