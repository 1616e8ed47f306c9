// The pin (csrc/pin/pin.h) for python/clampgrad/_pin/state.py.

#include "base/convention.h"
#include "pin/pin.h"
#include "python/module.h"

#include <torch/csrc/Exceptions.h>

namespace clampgrad {
namespace {

// Never released, because a kernel may call it while Python ends.
PyObject* block_resolver = nullptr;

pin::BlockRef resolve_block() {
  const py::gil_scoped_acquire gil;
  return py::cast<pin::BlockRef>(py::reinterpret_borrow<py::object>(block_resolver)());
}

void pin_set_block_resolver(py::object function) {
  Py_XDECREF(std::exchange(block_resolver, function.release().ptr()));
  pin::set_block_resolver(&resolve_block);
}

} // namespace

void add_pin(py::module& module) {
  using pin::Block;
  py::class_<Block, pin::BlockRef>(module, "Block")
      .def(py::init([](const pin::Name& name, pin::BlockRef outer, int64_t owner) {
        return std::make_shared<Block>(pin::parse_pin(name), std::move(outer), owner);
      }))
      .def_property_readonly(
          "name", [](const Block& block) { return pin::name_of(block.convention); })
      .def_readonly("outer", &Block::outer)
      .def_readonly("owner", &Block::owner)
      .def_property_readonly("is_of_this_thread", &Block::is_of_this_thread)
      .def("assign_to_this_thread", [](Block& block) { block.thread = std::this_thread::get_id(); })
      .def_property(
          "is_open",
          [](const Block& block) { return block.is_open.load(); },
          [](Block& block, bool is_open) { block.is_open = is_open; });
  const auto canonical_name = [](const py::object& gradient, bool maximize) {
    return pin::name_of(parse_convention(read_name(gradient.ptr()), maximize));
  };
  const auto current = [] { return pin::name_of(pin::current_pin()); };
  module.def("pin_canonical_name", torch::wrap_pybind_function(canonical_name));
  module.def("pin_thread_block", torch::wrap_pybind_function(&pin::get_thread_block));
  module.def("pin_set_thread_block", torch::wrap_pybind_function(&pin::set_thread_block));
  module.def(
      "pin_set_process", [](const pin::Name& n) { pin::set_process_pin(pin::parse_pin(n)); });
  module.def("pin_current", torch::wrap_pybind_function(current));
  module.def("pin_set_block_resolver", torch::wrap_pybind_function(&pin_set_block_resolver));
  module.def("pin_set_resolver_enabled", &pin::set_resolver_enabled);
  module.def("pin_register_kernels", torch::wrap_pybind_function(&pin::register_kernels));
  module.def("pin_call_counts", torch::wrap_pybind_function(&pin::call_counts));
}

} // namespace clampgrad
