#pragma once
// The name of a convention as Python gives it: a str, also of a class derived from it. Torch's own
// parser and pybind11 take bytes too.

#include <c10/util/Exception.h>
#include <torch/csrc/python_headers.h>

#include <string_view>

namespace clampgrad {

// Valid while the object is.
inline std::string_view text_of(PyObject* gradient) {
  TORCH_CHECK_TYPE(
      PyUnicode_Check(gradient), "gradient must be a str, not ", Py_TYPE(gradient)->tp_name);
  Py_ssize_t length = 0;
  if (const char* text = PyUnicode_AsUTF8AndSize(gradient, &length)) {
    return {text, static_cast<size_t>(length)};
  }
  PyErr_Clear(); // a lone surrogate, as os.environ has for what is not UTF-8
  return "(not UTF-8)";
}

} // namespace clampgrad
