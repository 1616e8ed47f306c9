#pragma once
// The bits that a forward records, as the uint8 tensor that autograd saves.

#include "base/bits.h"
#include "kernels/backend.h"

#include <ATen/core/Tensor.h>

namespace clampgrad {

at::Tensor empty_bits(const at::Tensor& like, int planes);

// The bits of the elements of `of`, after a check that this is what was saved: a saved-tensor hook
// may move or cast it.
at::Tensor checked_bits(const at::Tensor& bits, const at::Tensor& of, int planes);

inline const uint64_t* words_of(const at::Tensor& bits) {
  return static_cast<const uint64_t*>(bits.const_data_ptr());
}
inline uint64_t* mutable_words(const at::Tensor& bits) {
  return static_cast<uint64_t*>(bits.mutable_data_ptr());
}

inline Flat flat(const at::Tensor& t) {
  return {t.scalar_type(), t.numel(), t.device()};
}

} // namespace clampgrad
