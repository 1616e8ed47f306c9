#include "pin/torchscript.h"

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/jit/runtime/interpreter.h>

namespace clampgrad::pin {

void refuse_torchscript_autodiff() {
  if (!c10::GradMode::is_enabled()) {
    return;
  }
  // What TorchScript differentiates runs on detached inputs, in a frame of this name.
  for (const auto& frame : torch::jit::currentCallstack()) {
    TORCH_CHECK(
        frame.filename != "<forward op>",
        "clampgrad.pin: TorchScript differentiates this clamp by a rule of its own, which no "
        "pin reaches. Call the function that was scripted, or take the pin off around the script.");
  }
}

} // namespace clampgrad::pin
