#pragma once

#include <Python.h>

namespace clampgrad::pin {

// Adds what python/clampgrad/_pin.py calls to a module.
void add_functions(PyObject* module);

} // namespace clampgrad::pin
