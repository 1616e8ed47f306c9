#include "kernels/memory_order.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <numeric>

namespace clampgrad {

namespace {

constexpr int64_t kBits = 4;
constexpr int64_t kMostDims = 15; // so that the integer stays positive

c10::DimVector permutation(int64_t order, int64_t dim) {
  c10::DimVector dims(dim);
  for (auto i = dim - 1; i >= 0; --i, order >>= kBits) {
    dims[i] = order & ((1 << kBits) - 1);
  }
  return dims;
}

} // namespace

std::optional<int64_t> memory_order(const at::Tensor& tensor) {
  if (tensor.is_contiguous()) {
    return kContiguousOrder;
  }
  if (!tensor.is_non_overlapping_and_dense() || tensor.dim() > kMostDims) {
    return std::nullopt;
  }
  c10::DimVector dims(tensor.dim());
  std::iota(dims.begin(), dims.end(), 0);
  // The stride of a dimension of size 1 means nothing: such dimensions go outermost.
  const auto key = [&](int64_t d) {
    return tensor.size(d) == 1 ? std::numeric_limits<int64_t>::max() : tensor.stride(d);
  };
  std::stable_sort(dims.begin(), dims.end(), [&](int64_t a, int64_t b) { return key(a) > key(b); });
  return std::accumulate(dims.begin(), dims.end(), int64_t{0}, [](int64_t order, int64_t d) {
    return (order << kBits) | d;
  });
}

at::Tensor in_memory_order(const at::Tensor& tensor, int64_t order) {
  const auto flat =
      order == kContiguousOrder ? tensor : tensor.permute(permutation(order, tensor.dim()));
  return flat.is_contiguous() ? flat : flat.contiguous();
}

at::Tensor empty_in_order(at::IntArrayRef sizes, int64_t order, at::TensorOptions options) {
  if (order == kContiguousOrder) {
    return options.device().is_cpu() ? at::detail::empty_cpu(sizes, options)
                                     : at::empty(sizes, options);
  }
  c10::DimVector strides(sizes.size());
  int64_t stride = 1;
  const auto dims = permutation(order, static_cast<int64_t>(sizes.size()));
  for (auto i = static_cast<int64_t>(sizes.size()) - 1; i >= 0; --i) {
    strides[dims[i]] = stride;
    stride *= std::max<int64_t>(sizes[dims[i]], 1);
  }
  return at::empty_strided(sizes, strides, options);
}

} // namespace clampgrad
