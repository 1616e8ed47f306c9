#pragma once
// The autograd nodes.

#include "base/for_python.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

namespace clampgrad::autograd {

using at::Scalar;
using at::Tensor;
using namespace torch::autograd;

${node_declarations}

// A node with its edges to `inputs`, held as this release of torch holds nodes.
template <typename Node, typename... Inputs>
auto make_node(const Inputs&... inputs) {
  ${make_node}
  return grad_fn;
}

} // namespace clampgrad::autograd
