#include "Functions.h"

#include "Operators.h"
#include "ops/formulas.h"

#include <torch/csrc/autograd/FunctionsManual.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

namespace clampgrad::autograd {

using namespace torch::autograd::generated::details;
using namespace torch::dynamo::autograd;

namespace {

// The engine compares a gradient with the output before it calls a node. A direct call of a node,
// y.grad_fn(g), is checked here, because the saved bits know no shape.
void check_shape(const Node& node, const variable_list& grads) {
  TORCH_CHECK(
      !grads[0].defined() || node.input_metadata(0).is_same_shape(grads[0]),
      node.name(),
      ": got a gradient of shape ",
      grads[0].sym_sizes(),
      " for an output of shape ",
      node.input_metadata(0).shape_as_dim_vector());
}

at::IValue compute_output_metadata(const edge_list& next_edges) {
  return IValuePacker<std::vector<std::optional<InputMetadata>>>::pack(get_input_metadata(next_edges));
}

// The nodes' apply_with_saved calls this by name.
variable_list compiled_autograd_apply_functional(
    const PackedArgs& packed_args,
    const edge_list& next_edges,
    SwapSavedVariables& saved,
    const variable_list& grads,
    const std::string& name) {
  return getPyCompilerInterface()->call_function(
      saved.get_py_compiler(),
      "apply_functional",
      name,
      grads,
      packed_args.vec(),
      compute_output_metadata(next_edges));
}

} // namespace

${node_definitions}

} // namespace clampgrad::autograd
