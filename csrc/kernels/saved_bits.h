#pragma once
// The bits that a forward records, as the uint8 tensor that autograd saves.

#include "base/bits.h"

#include <ATen/core/Tensor.h>

namespace clampgrad {

at::Tensor empty_bits(const at::Tensor& like, int planes);

// The bits of the elements of `of`, after a check that this is what was saved: a saved-tensor hook
// may move or cast it.
at::Tensor checked_bits(const at::Tensor& bits, const at::Tensor& of, int planes);

} // namespace clampgrad
