#pragma once
// The parts of clampgrad._C, each in a file of its own, which module.cpp puts together.

#include <torch/csrc/utils/pybind.h>

#include <string_view>

namespace clampgrad {

// Reads the name of a convention: a str, or an object of a class derived from it. torch's parser
// and pybind11 would accept bytes too. The text is valid as long as the object.
std::string_view read_name(PyObject* gradient);

// The functions that python/clampgrad/functional.py documents. Defined in functions.cpp.
extern PyMethodDef function_methods[];

// Adds what python/clampgrad/_pin/state.py calls. Defined in pin_bindings.cpp.
void add_pin(py::module& module);

// Adds what python/clampgrad/_tools/audit/observer.py calls. Defined in observer.cpp.
void add_observer(py::module& module);

} // namespace clampgrad
