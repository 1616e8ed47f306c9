#pragma once
// What other files add to the module.

#include <Python.h>

namespace clampgrad {

// The Python types of the generated autograd nodes.
namespace autograd {
void add_node_types(PyObject* module);
}

// What python/clampgrad/_pin.py calls.
namespace pin {
void add_functions(PyObject* module);
}

} // namespace clampgrad
