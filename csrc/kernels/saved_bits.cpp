#include "kernels/saved_bits.h"

#include "kernels/memory_order.h"

#include <ATen/ATen.h>

namespace clampgrad {

at::Tensor empty_bits(const at::Tensor& like, int planes) {
  const auto bytes = planes_bytes(planes, like.numel());
  return empty_in_order({bytes}, kContiguousOrder, like.options().dtype(at::kByte));
}

const uint64_t* checked_bits(const at::Tensor& bits, int64_t n, int planes) {
  const auto bytes = planes_bytes(planes, n);
  TORCH_CHECK(
      bits.scalar_type() == at::kByte && bits.is_contiguous() && bits.numel() == bytes,
      "clampgrad: what was saved for ",
      n,
      " elements came back as ",
      bits.toString(),
      " of ",
      bits.numel(),
      " elements instead of ",
      bytes,
      " bytes; a saved-tensor hook must return what it was given");
  return static_cast<const uint64_t*>(bits.const_data_ptr());
}

} // namespace clampgrad
