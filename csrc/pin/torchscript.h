#pragma once

namespace clampgrad::pin {

// Raises RuntimeError inside what TorchScript differentiates by itself, where no pin reaches.
void refuse_torchscript_autodiff();

} // namespace clampgrad::pin
