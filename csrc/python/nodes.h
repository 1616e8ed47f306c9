#pragma once

#include <Python.h>

namespace clampgrad::autograd {

// Adds the Python types of the generated autograd nodes to a module.
void add_node_types(PyObject* module);

} // namespace clampgrad::autograd
