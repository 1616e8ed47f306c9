// The functions that python/clampgrad/functional.py documents: their arguments, and the calls.
//
// What is common (plain Tensors, Python numbers) is read by hand; the rest goes to torch's own
// argument parser, which knows every kind of number, __torch_function__, and how to word an error.

#include "base/bounds.h"
#include "base/convention.h"
#include "base/path.h"
#include "clampgrad/clampgrad.h"
#include "python/module.h"
#include "python/signatures.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/python_arg_parser.h>

#include <algorithm>

namespace clampgrad {

using at::Tensor;

std::string_view read_name(PyObject* gradient) {
  TORCH_CHECK_TYPE(
      PyUnicode_Check(gradient), "gradient must be a str, not ", Py_TYPE(gradient)->tp_name);
  Py_ssize_t length = 0;
  if (const char* text = PyUnicode_AsUTF8AndSize(gradient, &length)) {
    return {text, static_cast<size_t>(length)};
  }
  PyErr_Clear(); // a lone surrogate, as os.environ has for what is not UTF-8
  return "(not UTF-8)";
}

namespace {

// ---- The functions ------------------------------------------------------------------------------

struct Arguments {
  Tensor self;
  Bound bounds[2];
  Gradient gradient;
  bool maximize;
  Tensor out; // undefined where there is none
};

// A function of clampgrad.h, or the one for out=.
template <auto function, auto function_out = nullptr>
Tensor call_function(Arguments& a) {
  const auto call = [&](const auto&... rest) -> Tensor {
    if constexpr (!std::is_null_pointer_v<decltype(function_out)>) {
      if (a.out.defined()) {
        return function_out(a.out, a.self, rest...);
      }
    }
    return function(a.self, rest...);
  };
  using F = decltype(function);
  if constexpr (std::is_invocable_v<F, Tensor&, Bound, Bound, Gradient, bool>) {
    return call(a.bounds[0], a.bounds[1], a.gradient, a.maximize);
  } else if constexpr (std::is_invocable_v<F, Tensor&, Bound, Gradient, bool>) {
    return call(a.bounds[0], a.gradient, a.maximize);
  } else {
    return call(*a.bounds[0].tensor, a.gradient);
  }
}

size_t bound_count(const Signature& s) {
  return s.parameters[kSecond] ? 2 : 1;
}
bool is_clamp(const Signature& s) {
  return s.parameters[kMaximize];
}

// ---- Their arguments ----------------------------------------------------------------------------

// Raises an error with Python's message, which suggests a known name, or with C++'s while Python
// ends.
[[noreturn]] void raise_unknown(std::string_view name) {
  std::string text;
  try {
    const auto table = py::reinterpret_steal<py::object>(
        PyImport_GetModule(py::str("clampgrad._contract.table").ptr()));
    if (table && !table.is_none()) {
      text = py::cast<std::string>(table.attr("unknown_gradient_message")(name));
    }
  } catch (const py::error_already_set&) { // what it needs is gone
  }
  TORCH_CHECK_VALUE(text.empty(), text);
  raise_unknown_gradient(name);
}

size_t parameter_of(const Signature& s, PyObject* keyword) {
  for (size_t p = 0; p < kParameters; ++p) {
    if (s.parameters[p] && PyUnicode_CompareWithASCIIString(keyword, s.parameters[p]) == 0) {
      return p;
    }
  }
  const auto name = read_name(keyword);
  TORCH_CHECK_TYPE(false, s.name, "() got an unexpected keyword argument '", name, "'");
}

// The arguments of a call by parameter; null where an argument is absent.
struct ParsedCall {
  PyObject* at[kParameters] = {};
  size_t positional;
  Gradient gradient;

  ParsedCall(const Signature& s, PyObject* const* args, size_t count, PyObject* keywords)
      : positional(count) {
    const size_t most = 1 + bound_count(s);
    TORCH_CHECK_TYPE(count <= most, s.name, "() takes at most ", most, " positional arguments");
    std::copy_n(args, count, at);
    for (Py_ssize_t i = 0; keywords && i < PyTuple_GET_SIZE(keywords); ++i) {
      const auto p = parameter_of(s, PyTuple_GET_ITEM(keywords, i));
      TORCH_CHECK_TYPE(
          !at[p], s.name, "() got multiple values for argument '", s.parameters[p], "'");
      at[p] = args[count + i];
    }
    // Report an unknown convention first.
    const auto name = at[kGradient] ? read_name(at[kGradient]) : name_of(Gradient::min_norm);
    const bool maximize = at[kMaximize] == Py_True;
    const auto known = find_gradient(name);
    if (!known) {
      raise_unknown(name);
    }
    gradient = is_clamp(s) ? check_convention(*known, maximize, name).gradient
                           : check_exact_gradient(*known, s.name, name);
  }

  bool has(Parameter p) const {
    return at[p] && at[p] != Py_None;
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

bool read_plain(const Signature& s, const ParsedCall& parsed_call, Arguments& arguments) {
  PyObject* const maximize = parsed_call.at[kMaximize];
  if (!parsed_call.at[kInput] || !THPVariable_CheckExact(parsed_call.at[kInput]) ||
      at::impl::torch_function_mode_enabled() || (maximize && !PyBool_Check(maximize)) ||
      parsed_call.has(kOut) || (bound_count(s) == 1 && !parsed_call.has(kFirst))) {
    return false;
  }
  for (size_t i = 0; i < bound_count(s); ++i) {
    if (!read_bound(parsed_call.at[kFirst + i], arguments.bounds[i])) {
      return false;
    }
  }
  arguments.gradient = parsed_call.gradient;
  arguments.maximize = maximize == Py_True;
  arguments.self = THPVariable_Unpack(parsed_call.at[kInput]);
  return is_clamp(s) || arguments.bounds[0].tensor; // an extremum has no numbers
}

std::vector<std::string> overloads(const Signature& s, bool tensors) {
  const auto* const* all = s.overloads;
  if (!all[1] || !tensors) {
    return {all[0]};
  }
  return {all + 1, std::find(all + 1, std::end(s.overloads), nullptr)};
}

using FunctionCall = Tensor(Arguments&);

PyObject* call_and_wrap(FunctionCall function, Arguments& arguments) {
  Tensor result;
  {
    pybind11::gil_scoped_release no_gil;
    result = function(arguments);
  }
  return THPVariable_Wrap(std::move(result)); // in place and out=: the object that was given
}

PyObject* run_parsed(
    const Signature& s,
    FunctionCall function,
    const ParsedCall& parsed_call,
    PyObject* module,
    torch::PythonArgParser& parser) {
  py::tuple positional(parsed_call.positional);
  py::dict keywords; // with the gradient, which a graph of torch.fx then names
  keywords["gradient"] = name_of(parsed_call.gradient);
  for (size_t p = 0; p < kParameters; ++p) {
    if (p < parsed_call.positional) {
      positional[p] = py::handle(parsed_call.at[p]);
    } else if (parsed_call.at[p]) {
      keywords[s.parameters[p]] = py::handle(parsed_call.at[p]);
    }
  }
  torch::ParsedArgs<kParameters> parsed;
  auto r = parser.parse(nullptr, positional.ptr(), keywords.ptr(), parsed);
  if (r.has_torch_function()) {
    const auto itself = py::handle(module).attr(s.name);
    return torch::handle_torch_function_no_python_arg_parser(
        r.overloaded_args, positional.ptr(), keywords.ptr(), s.name, itself.ptr(), "clampgrad");
  }
  Arguments arguments;
  int next = 0; // in the order of Parameter
  arguments.self = r.tensor(next++);
  for (size_t i = 0; i < bound_count(s); ++i, ++next) {
    arguments.bounds[i] = r.isNone(next)  ? Bound()
        : THPVariable_Check(r.args[next]) ? Bound(r.tensor(next))
                                          : Bound(r.scalar(next));
  }
  arguments.gradient = parsed_call.gradient;
  ++next; // which is the gradient
  arguments.maximize = is_clamp(s) && r.toBool(next++);
  if (s.parameters[kOut] && !r.isNone(next)) {
    arguments.out = r.tensor(next);
  }
  return call_and_wrap(function, arguments);
}

template <const Signature& s, FunctionCall function>
PyObject* entry(PyObject* module, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  HANDLE_TH_ERRORS
  const ParsedCall parsed_call(s, args, count, keywords);
  if (Arguments arguments; read_plain(s, parsed_call, arguments)) {
    return call_and_wrap(function, arguments);
  }
  static torch::PythonArgParser numbers(overloads(s, /*tensors=*/false), /*traceable=*/false);
  static torch::PythonArgParser tensors(overloads(s, /*tensors=*/true), /*traceable=*/false);
  const bool of_tensors =
      std::any_of(&parsed_call.at[kFirst], &parsed_call.at[kSecond] + 1, [](PyObject* o) {
        return o && THPVariable_Check(o);
      });
  return run_parsed(s, function, parsed_call, module, of_tensors ? tensors : numbers);
  END_HANDLE_TH_ERRORS
}

// clamp_plain(input, min, max, inplace, gradient, maximize): a clamp between numbers, or without a
// max for relu, where there is nothing that the long way (activations.py) has to look at, and else
// None. What it calls may raise: a leaf that requires grad cannot be changed in place.
PyObject* clamp_plain(PyObject*, PyObject* const* args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  constexpr Py_ssize_t kCount = 6;
  PyObject* const maximize = count == kCount ? args[5] : Py_None;
  if (!PyBool_Check(maximize) || !PyBool_Check(args[3]) || !THPVariable_CheckExact(args[0]) ||
      at::impl::torch_function_mode_enabled() || !PyUnicode_Check(args[4])) {
    Py_RETURN_NONE;
  }
  Arguments arguments = {};
  arguments.self = THPVariable_Unpack(args[0]);
  auto& [min, max] = arguments.bounds;
  const auto known = find_gradient(read_name(args[4]));
  if (!arguments.self.is_floating_point() || !is_plain(arguments.self) ||
      !read_bound(args[1], min) || !read_bound(args[2], max) || !min.number || max.tensor ||
      (max.number && !(min.number->toDouble() <= max.number->toDouble())) || !known ||
      (maximize == Py_True && !is_pseudo(*known))) {
    Py_RETURN_NONE;
  }
  arguments.gradient = *known;
  arguments.maximize = maximize == Py_True;
  const bool in_place = args[3] == Py_True;
  if (max.number) {
    return call_and_wrap(
        in_place ? &call_function<clamp_> : &call_function<clamp, clamp_out>, arguments);
  }
  return call_and_wrap(
      in_place ? &call_function<clamp_min_> : &call_function<clamp_min, clamp_min_out>, arguments);
  END_HANDLE_TH_ERRORS
}

// The C API has one type for functions, to which others are cast.
template <typename Function>
PyCFunction as_c_function(Function* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

template <const Signature& s, FunctionCall function>
PyMethodDef method() {
  return {s.name, as_c_function(&entry<s, function>), METH_FASTCALL | METH_KEYWORDS, nullptr};
}

} // namespace

#define CLAMPGRAD_WITH_OUT(name) method<signatures::name, call_function<name, name##_out>>(),
#define CLAMPGRAD_IN_PLACE(name) method<signatures::name, call_function<name>>(),
PyMethodDef function_methods[] = {
    CLAMPGRAD_PYTHON_FUNCTIONS(CLAMPGRAD_WITH_OUT, CLAMPGRAD_IN_PLACE) // in python/signatures.h
    {"clamp_plain", as_c_function(&clamp_plain), METH_FASTCALL, nullptr},
    {}};
#undef CLAMPGRAD_WITH_OUT
#undef CLAMPGRAD_IN_PLACE

} // namespace clampgrad
