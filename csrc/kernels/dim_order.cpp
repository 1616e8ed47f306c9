#include "kernels/dim_order.h"

#include "base/bits.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace clampgrad {

namespace {

constexpr int64_t kBits = 4;
constexpr int64_t kMostDims = 15; // so that the integer stays positive
constexpr int64_t kShortestPeriod = 1024;

// Raises where `dim_order` is not a permutation of `dim` dimensions: it is an argument of
// operators.
c10::DimVector permutation(int64_t dim_order, int64_t dim) {
  c10::DimVector dims(dim);
  int64_t seen = 0, rest = dim_order;
  for (auto i = dim - 1; i >= 0; --i, rest >>= kBits) {
    dims[i] = rest & ((1 << kBits) - 1);
    seen |= int64_t{1} << dims[i];
  }
  TORCH_CHECK_VALUE(
      dim <= kMostDims && rest == 0 && seen == (int64_t{1} << dim) - 1,
      "clampgrad: ",
      dim_order,
      " is no order of ",
      dim,
      " dimensions");
  return dims;
}

int64_t packed(const c10::DimVector& dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{0}, [](int64_t digits, int64_t d) {
    return (digits << kBits) | d;
  });
}

std::vector<c10::SymInt> strides_in_dim_order(c10::SymIntArrayRef sizes, int64_t dim_order) {
  std::vector<c10::SymInt> strides(sizes.size());
  c10::SymInt stride = 1;
  const auto dims = permutation(dim_order, static_cast<int64_t>(sizes.size()));
  for (auto d = dims.rbegin(); d != dims.rend(); ++d) {
    strides[*d] = stride;
    stride *= sizes[*d].max(1);
  }
  return strides;
}

std::optional<int64_t> dim_order_from(at::IntArrayRef sizes, at::IntArrayRef strides) {
  const auto dim = static_cast<int64_t>(sizes.size());
  if (dim > kMostDims) {
    return std::nullopt;
  }
  c10::DimVector dims(dim);
  std::iota(dims.begin(), dims.end(), 0);
  // Of two dimensions with the same stride, at most one has more than one element. The other, of
  // size 1, goes inside it, so that a compact tensor in this order gives it the stride it has.
  std::stable_sort(dims.begin(), dims.end(), [&](int64_t a, int64_t b) {
    return std::pair(strides[a], sizes[a]) > std::pair(strides[b], sizes[b]);
  });
  return std::is_sorted(dims.begin(), dims.end()) ? kContiguous : packed(dims);
}

bool is_channels_last(const at::Tensor& tensor) {
  return tensor.dim() == 4 && tensor.is_contiguous(at::MemoryFormat::ChannelsLast);
}

} // namespace

std::optional<int64_t> dim_order_of(const at::Tensor& tensor) {
  if (tensor.is_contiguous()) {
    return kContiguous;
  }
  if (!tensor.is_non_overlapping_and_dense()) {
    return std::nullopt;
  }
  return is_channels_last(tensor) ? packed({0, 2, 3, 1}) : dim_order_of_strides(tensor);
}

std::optional<int64_t> dim_order_of_strides(const at::Tensor& tensor) {
  return dim_order_from(tensor.sizes(), tensor.strides());
}

int64_t dim_order_of_copy(const at::Tensor& tensor) {
  const auto order = dim_order_of(tensor);
  if (order || tensor.is_non_overlapping_and_dense()) {
    return order.value_or(kContiguous);
  }
  const auto strides = at::infer_dense_strides(tensor.sizes(), tensor.strides());
  return dim_order_from(tensor.sizes(), strides).value_or(kContiguous);
}

at::Tensor permuted(const at::Tensor& tensor, int64_t dim_order) {
  return dim_order == kContiguous ? tensor : tensor.permute(permutation(dim_order, tensor.dim()));
}

Repeated repeated_in_dim_order(const at::Tensor& tensor, int64_t dim_order) {
  const auto all = tensor.numel();
  if (dim_order == kContiguous && tensor.is_contiguous()) {
    return {tensor, all};
  }
  auto block = permuted(tensor, dim_order);
  if (block.is_contiguous() || !tensor.is_cpu()) {
    return {block.contiguous(), all};
  }
  int64_t repeats = 1;
  while (block.dim() > 0 && (block.stride(0) == 0 || block.size(0) == 1)) {
    repeats *= block.size(0);
    block = block.select(0, 0);
  }
  // Not fewer than some words, so that the loops seldom start again.
  const auto least = std::lcm(all / repeats, kWord);
  const auto period = least * ((kShortestPeriod + least - 1) / least);
  if (period > all / 2) {
    return {permuted(tensor, dim_order).contiguous(), all};
  }
  const auto copies = period / (all / repeats);
  return {block.contiguous().view({1, -1}).expand({copies, -1}).contiguous(), period};
}

at::Tensor empty_in_dim_order(
    c10::SymIntArrayRef sizes, int64_t dim_order, const at::TensorOptions& options) {
  if (dim_order != kContiguous) {
    return at::empty_strided_symint(sizes, strides_in_dim_order(sizes, dim_order), options);
  }
  return options.device().is_cpu() ? at::detail::empty_cpu(C10_AS_INTARRAYREF_SLOW(sizes), options)
                                   : at::empty_symint(sizes, options);
}

at::Tensor empty_like_in_dim_order(const at::Tensor& like, int64_t dim_order) {
  return !is_channels_last(like) && dim_order_of(like) == dim_order
      ? at::empty_strided(like.sizes(), like.strides(), like.options())
      : empty_in_dim_order(like.sym_sizes(), dim_order, like.options());
}

} // namespace clampgrad
