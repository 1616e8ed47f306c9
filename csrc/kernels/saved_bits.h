#pragma once
// The bits that a forward records, as the uint8 tensor that autograd saves.

#include "kernels/gate.h"

#include <ATen/core/Tensor.h>

namespace clampgrad {

at::Tensor empty_bits(const at::Tensor& like, int planes);

// The words, after a check that this is what was saved: a saved-tensor hook may move or cast it.
const uint64_t* checked_bits(const at::Tensor& bits, int64_t n, int planes);

} // namespace clampgrad
