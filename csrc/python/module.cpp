// clampgrad._C: the functions that python/clampgrad/functional.py documents.
//
// What is common (plain Tensors, Python numbers) is read by hand; the rest goes to torch's own
// argument parser, which knows every kind of number, __torch_function__, and how to word an error.

#include "base/bounds.h"
#include "base/path.h"
#include "clampgrad/clampgrad.h"
#include "pin/pin.h"
#include "python/signatures.h"
#include "stamp.h" // generated

#include <ATen/PythonTorchFunctionTLS.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/python_arg_parser.h>

#include <algorithm>

namespace clampgrad {

// The Python types of the autograd nodes, in the generated python_functions.cpp.
namespace autograd {
void add_node_types(PyObject* module);
}

namespace {

using at::Tensor;

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
Tensor run(Arguments& a) {
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

size_t bounds_of(const Signature& s) {
  return s.parameters[kSecond] ? 2 : 1;
}
bool is_clamp(const Signature& s) {
  return s.parameters[kMaximize];
}

// ---- Their arguments ----------------------------------------------------------------------------

// The name of a convention: a str, or an object of a class derived from it. It is read here,
// because torch's parser and pybind11 take bytes too. The text is valid as long as the object.
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

// Raises with Python's message, which suggests a known name, or while Python ends, with C++'s.
void raise_unknown(std::string_view name) {
  std::string said;
  try {
    const auto table = py::reinterpret_steal<py::object>(
        PyImport_GetModule(py::str("clampgrad._contract.table").ptr()));
    if (table && !table.is_none()) {
      said = py::cast<std::string>(table.attr("unknown")(name));
    }
  } catch (const py::error_already_set&) { // what it needs is gone
  }
  TORCH_CHECK_VALUE(said.empty(), said);
  parse_convention(name, /*maximize=*/false);
}

size_t parameter_of(const Signature& s, PyObject* keyword) {
  for (size_t p = 0; p < kParameters; ++p) {
    if (s.parameters[p] && PyUnicode_CompareWithASCIIString(keyword, s.parameters[p]) == 0) {
      return p;
    }
  }
  const auto name = text_of(keyword);
  TORCH_CHECK_TYPE(false, s.name, "() got an unexpected keyword argument '", name, "'");
}

// The arguments of a call by parameter; null where an argument is absent.
struct Given {
  PyObject* at[kParameters] = {};
  size_t positional;
  Gradient gradient;

  Given(const Signature& s, PyObject* const* args, size_t count, PyObject* keywords)
      : positional(count) {
    const size_t most = 1 + bounds_of(s);
    TORCH_CHECK_TYPE(count <= most, s.name, "() takes at most ", most, " positional arguments");
    std::copy_n(args, count, at);
    for (Py_ssize_t i = 0; keywords && i < PyTuple_GET_SIZE(keywords); ++i) {
      const auto p = parameter_of(s, PyTuple_GET_ITEM(keywords, i));
      TORCH_CHECK_TYPE(
          !at[p], s.name, "() got multiple values for argument '", s.parameters[p], "'");
      at[p] = args[count + i];
    }
    // Report an unknown convention first.
    const auto name = at[kGradient] ? text_of(at[kGradient]) : name_of(Gradient::min_norm);
    const bool maximize = at[kMaximize] == Py_True;
    const auto known = gradient_named(name);
    if (!known) {
      raise_unknown(name);
    }
    gradient = is_clamp(s) ? checked_convention(*known, maximize, name).gradient
                           : checked_exact(*known, s.name, name);
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

bool read_plain(const Signature& s, const Given& given, Arguments& arguments) {
  PyObject* const maximize = given.at[kMaximize];
  if (!given.at[kInput] || !THPVariable_CheckExact(given.at[kInput]) ||
      at::impl::torch_function_mode_enabled() || (maximize && !PyBool_Check(maximize)) ||
      given.has(kOut) || (bounds_of(s) == 1 && !given.has(kFirst))) {
    return false;
  }
  for (size_t i = 0; i < bounds_of(s); ++i) {
    if (!read_bound(given.at[kFirst + i], arguments.bounds[i])) {
      return false;
    }
  }
  arguments.gradient = given.gradient;
  arguments.maximize = maximize == Py_True;
  arguments.self = THPVariable_Unpack(given.at[kInput]);
  return is_clamp(s) || arguments.bounds[0].tensor; // an extremum has no numbers
}

std::vector<std::string> overloads(const Signature& s, bool tensors) {
  const auto* const* all = s.overloads;
  if (!all[1] || !tensors) {
    return {all[0]};
  }
  return {all + 1, std::find(all + 1, std::end(s.overloads), nullptr)};
}

using Run = Tensor(Arguments&);

PyObject* finish(Run run, Arguments& arguments) {
  Tensor result;
  {
    pybind11::gil_scoped_release no_gil;
    result = run(arguments);
  }
  return THPVariable_Wrap(std::move(result)); // in place and out=: the object that was given
}

PyObject* run_parsed(
    const Signature& s,
    Run run,
    const Given& given,
    PyObject* module,
    torch::PythonArgParser& parser) {
  py::tuple positional(given.positional);
  py::dict keywords; // with the gradient, which a graph of torch.fx then names
  keywords["gradient"] = name_of(given.gradient);
  for (size_t p = 0; p < kParameters; ++p) {
    if (p < given.positional) {
      positional[p] = py::handle(given.at[p]);
    } else if (given.at[p]) {
      keywords[s.parameters[p]] = py::handle(given.at[p]);
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
  for (size_t i = 0; i < bounds_of(s); ++i, ++next) {
    arguments.bounds[i] = r.isNone(next)  ? Bound()
        : THPVariable_Check(r.args[next]) ? Bound(r.tensor(next))
                                          : Bound(r.scalar(next));
  }
  arguments.gradient = given.gradient;
  ++next; // which is the gradient
  arguments.maximize = is_clamp(s) && r.toBool(next++);
  if (s.parameters[kOut] && !r.isNone(next)) {
    arguments.out = r.tensor(next);
  }
  return finish(run, arguments);
}

template <const Signature& s, Run run>
PyObject* entry(PyObject* module, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  HANDLE_TH_ERRORS
  const Given given(s, args, count, keywords);
  if (Arguments arguments; read_plain(s, given, arguments)) {
    return finish(run, arguments);
  }
  static torch::PythonArgParser numbers(overloads(s, /*tensors=*/false), /*traceable=*/false);
  static torch::PythonArgParser tensors(overloads(s, /*tensors=*/true), /*traceable=*/false);
  const bool of_tensors = std::any_of(&given.at[kFirst], &given.at[kSecond] + 1, [](PyObject* o) {
    return o && THPVariable_Check(o);
  });
  return run_parsed(s, run, given, module, of_tensors ? tensors : numbers);
  END_HANDLE_TH_ERRORS
}

// clamp_plain(input, min, max, inplace, gradient, maximize): a clamp between numbers, or without a
// max for relu, where there is nothing that the long way (activations.py) has to look at, and else
// None. It raises no error.
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
  const auto known = gradient_named(text_of(args[4]));
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
    return finish(in_place ? &run<clamp_> : &run<clamp, clamp_out>, arguments);
  }
  return finish(in_place ? &run<clamp_min_> : &run<clamp_min, clamp_min_out>, arguments);
  END_HANDLE_TH_ERRORS
}

// The C API has one type for functions, to which others are cast.
template <typename Function>
PyCFunction as_c_function(Function* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

template <const Signature& s, Run run>
PyMethodDef method() {
  return {s.name, as_c_function(&entry<s, run>), METH_FASTCALL | METH_KEYWORDS, nullptr};
}

PyMethodDef methods[] = {
    method<signatures::clamp, run<clamp, clamp_out>>(),
    method<signatures::clamp_, run<clamp_>>(),
    method<signatures::clamp_min, run<clamp_min, clamp_min_out>>(),
    method<signatures::clamp_min_, run<clamp_min_>>(),
    method<signatures::clamp_max, run<clamp_max, clamp_max_out>>(),
    method<signatures::clamp_max_, run<clamp_max_>>(),
    method<signatures::maximum, run<maximum, maximum_out>>(),
    method<signatures::minimum, run<minimum, minimum_out>>(),
    method<signatures::fmax, run<fmax, fmax_out>>(),
    method<signatures::fmin, run<fmin, fmin_out>>(),
    {"clamp_plain", as_c_function(&clamp_plain), METH_FASTCALL, nullptr},
    {}};

// ---- What python/clampgrad/_pin/state.py calls --------------------------------------------------

// It is never released, because a thread may ask while Python ends.
PyObject* function_to_ask = nullptr;

pin::BlockRef ask() {
  const py::gil_scoped_acquire gil;
  return py::cast<pin::BlockRef>(py::reinterpret_borrow<py::object>(function_to_ask)());
}

void pin_ask(py::object function) {
  Py_XDECREF(std::exchange(function_to_ask, function.release().ptr()));
  pin::ask_with(&ask);
}

// ---- What python/clampgrad/_tools/audit/observer.py calls ---------------------------------------

PyObject* observer = nullptr; // guarded by the GIL

py::object to_python(const c10::IValue& value) {
  if (value.isTensor()) {
    return py::cast(value.toTensor());
  }
  if (value.isScalar()) {
    return py::cast(value.toScalar());
  }
  if (!value.isList()) {
    return py::none();
  }
  py::list list;
  for (const c10::IValue& each : value.toListRef()) {
    list.append(to_python(each));
  }
  return list;
}

pin::Then tell_observer(const char* name, const std::vector<c10::IValue>& args) {
  const py::gil_scoped_acquire gil;
  if (!observer) {
    return {};
  }
  py::tuple given(args.size());
  for (const auto i : c10::irange(args.size())) {
    given[i] = to_python(args[i]);
  }
  auto then = py::handle(observer)(name, given);
  if (then.is_none()) {
    return {};
  }
  const std::shared_ptr<PyObject> kept(then.release().ptr(), [](PyObject* object) {
    const py::gil_scoped_acquire gil;
    Py_DECREF(object);
  });
  return [kept](const c10::IValue& result) {
    const py::gil_scoped_acquire gil;
    py::handle(kept.get())(to_python(result));
  };
}

void pin_observe(py::object function) {
  const bool observes = !function.is_none();
  Py_XDECREF(std::exchange(observer, observes ? function.release().ptr() : nullptr));
  pin::observe_with(observes ? &tell_observer : nullptr);
}

void add_pin(PyObject* module_) {
  using pin::Block;
  auto module = py::reinterpret_borrow<py::module>(module_);
  py::class_<Block, pin::BlockRef>(module, "Block")
      .def(py::init([](const pin::Name& name, pin::BlockRef outer, int64_t owner) {
        return std::make_shared<Block>(pin::parse_pinned(name), std::move(outer), owner);
      }))
      .def_property_readonly("name", [](const Block& block) { return pin::name_of(block.pinned); })
      .def_readonly("outer", &Block::outer)
      .def_readonly("owner", &Block::owner)
      .def_property_readonly("is_of_this_thread", &Block::is_of_this_thread)
      .def("move_here", [](Block& block) { block.thread = std::this_thread::get_id(); })
      .def_property(
          "is_open",
          [](const Block& block) { return block.is_open.load(); },
          [](Block& block, bool is_open) { block.is_open = is_open; });
  const auto named = [](const py::object& gradient, bool maximize) {
    return pin::name_of(parse_convention(text_of(gradient.ptr()), maximize));
  };
  const auto current = [] { return pin::name_of(pin::current()); };
  module.def("pin_named", torch::wrap_pybind_function(named));
  module.def("pin_innermost", torch::wrap_pybind_function(&pin::innermost));
  module.def("pin_make_innermost", torch::wrap_pybind_function(&pin::make_innermost));
  module.def("pin_process", [](const pin::Name& n) { pin::set_process(pin::parse_pinned(n)); });
  module.def("pin_current", torch::wrap_pybind_function(current));
  module.def("pin_ask", torch::wrap_pybind_function(&pin_ask));
  module.def("pin_ask_in_this_thread", &pin::ask_in_this_thread);
  module.def("pin_register", torch::wrap_pybind_function(&pin::register_kernels));
  module.def("pin_reached", torch::wrap_pybind_function(&pin::calls_reached));
  module.def("pin_observe", &pin_observe);
}

at::Scalar guarded_by_python(const at::Scalar& bound) {
  const py::gil_scoped_acquire gil;
  const auto guarded = py::module_::import("clampgrad._torch.surroundings").attr("guarded");
  if (bound.isFloatingPoint()) {
    return guarded(bound.toSymFloat()).cast<c10::SymFloat>();
  }
  return guarded(bound.toSymInt()).cast<c10::SymInt>();
}

} // namespace
} // namespace clampgrad

PyMODINIT_FUNC PyInit__C() {
  static PyModuleDef definition = {
      PyModuleDef_HEAD_INIT, "clampgrad._C", nullptr, -1, clampgrad::methods};
  PyObject* module = PyModule_Create(&definition);
  if (module) {
    clampgrad::autograd::add_node_types(module);
    clampgrad::add_pin(module);
    clampgrad::guard_with(&clampgrad::guarded_by_python);
    // As csrc/base/stamp.cpp has it: this file can be another build's too.
    PyModule_AddStringConstant(module, "stamp", clampgrad::kStamp);
  }
  return module;
}
