#include "kernels/saved_bits.h"

#include "kernels/memory_order.h"

#include <ATen/core/Tensor.h>

namespace clampgrad {

at::Tensor empty_bits(const at::Tensor& like, int planes) {
  const auto bytes = planes_bytes(planes, like.numel());
  return empty_in_order({bytes}, kContiguousOrder, like.options().dtype(at::kByte));
}

at::Tensor checked_bits(const at::Tensor& bits, const at::Tensor& of, int planes) {
  const auto bytes = planes_bytes(planes, of.numel());
  TORCH_CHECK(
      bits.scalar_type() == at::kByte && bits.is_contiguous() && bits.numel() == bytes &&
          bits.device() == of.device(),
      "clampgrad: what was saved for ",
      of.numel(),
      " elements on ",
      of.device(),
      " came back as ",
      bits.toString(),
      " of ",
      bits.numel(),
      " elements on ",
      bits.device(),
      " instead of ",
      bytes,
      " bytes; a saved-tensor hook must return what it was given");
  // It may have put them at any address, and kernels read whole words.
  const bool aligned = reinterpret_cast<uintptr_t>(bits.const_data_ptr()) % alignof(uint64_t) == 0;
  return aligned ? bits : bits.clone();
}

} // namespace clampgrad
