#include "kernels/dim_order.h"

#include "base/bits.h"

#include <ATen/EmptyTensor.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace clampgrad {

at::Tensor empty_result(at::TensorList args) {
  const auto& first = args[0];
  const bool alike = std::all_of(args.begin(), args.end(), [&](const at::Tensor& t) {
    return t.sizes() == first.sizes() && t.is_contiguous();
  });
  if (alike) {
    return empty_in_dim_order(first.sym_sizes(), {}, first.options());
  }
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false)
      .declare_static_dtype_and_device(first.scalar_type(), first.device())
      .add_owned_output(at::Tensor());
  for (const auto& t : args) {
    config.add_const_input(t);
  }
  return config.build().output();
}

std::vector<int64_t> dim_order_of(const at::Tensor& dense) {
  if (dense.is_contiguous()) {
    return {};
  }
  std::vector<int64_t> dims(dense.dim());
  std::iota(dims.begin(), dims.end(), 0);
  const auto sizes = dense.sizes(), strides = dense.strides();
  // Of two dimensions with the same stride, at most one has more than one element. The other, of
  // size 1, goes inside it, so that a compact tensor in this order gives it the stride it has.
  std::stable_sort(dims.begin(), dims.end(), [&](int64_t a, int64_t b) {
    return std::pair(strides[a], sizes[a]) > std::pair(strides[b], sizes[b]);
  });
  return dims;
}

at::Tensor empty_in_dim_order(
    c10::SymIntArrayRef sizes, at::IntArrayRef dim_order, const at::TensorOptions& options) {
  if (dim_order.empty()) {
    return options.device().is_cpu()
        ? at::detail::empty_cpu(C10_AS_INTARRAYREF_SLOW(sizes), options)
        : at::empty_symint(sizes, options);
  }
  std::vector<int64_t> dims(sizes.size());
  std::iota(dims.begin(), dims.end(), 0);
  TORCH_CHECK_VALUE(
      std::is_permutation(dims.begin(), dims.end(), dim_order.begin(), dim_order.end()),
      "clampgrad: no order of the dimensions: ",
      dim_order);
  std::vector<c10::SymInt> strides(sizes.size());
  c10::SymInt stride = 1;
  for (auto d = dim_order.rbegin(); d != dim_order.rend(); ++d) {
    strides[*d] = stride;
    stride *= sizes[*d].max(1);
  }
  return at::empty_strided_symint(sizes, strides, options);
}

at::Tensor permute_to_order(const at::Tensor& tensor, at::IntArrayRef dim_order) {
  return dim_order.empty() ? tensor : tensor.permute(dim_order);
}

StridedInput to_strided_input(const at::Tensor& tensor, at::IntArrayRef dim_order) {
  const auto view = permute_to_order(tensor, dim_order);
  const auto flat = Layout::flat(tensor.numel());
  if (view.is_contiguous()) {
    return {view, flat};
  }
  // Indices and strides have 32 bits on the GPU, and an index that is divided has 31.
  constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();
  Layout layout = {};
  for (int64_t d = view.dim() - 1; d >= 0; --d) {
    const auto size = view.size(d), stride = view.stride(d);
    if (size == 1) {
      continue;
    }
    const int inner = layout.dims - 1;
    if (inner >= 0 && stride == layout.stride[inner] * layout.size[inner]) {
      layout.size[inner] *= size;
    } else if (layout.dims == Layout::kDims || stride > kLargest) {
      return {view.contiguous(), flat};
    } else {
      layout.size[layout.dims] = size;
      layout.stride[layout.dims++] = stride;
    }
  }
  const bool is_number = layout.dims == 1 && layout.stride[0] == 0;
  const auto largest = is_number ? 2 * kLargest : kLargest;
  return tensor.numel() <= largest ? StridedInput{view, layout}
                                   : StridedInput{view.contiguous(), flat};
}

RepeatedInput to_repeated_input(const at::Tensor& tensor, at::IntArrayRef dim_order) {
  const auto all = tensor.numel();
  if (dim_order.empty() && tensor.is_contiguous()) {
    return {tensor, all};
  }
  auto block = permute_to_order(tensor, dim_order);
  if (block.is_contiguous()) {
    return {block.contiguous(), all};
  }
  int64_t repeats = 1;
  while (block.dim() > 0 && (block.stride(0) == 0 || block.size(0) == 1)) {
    repeats *= block.size(0);
    block = block.select(0, 0);
  }
  // Make a period at least 1024 elements, so that the loops seldom return to its start.
  constexpr int64_t kShortestPeriod = 1024;
  const auto least = std::lcm(all / repeats, kElementsPerWord);
  const auto period_elements = least * ((kShortestPeriod + least - 1) / least);
  if (period_elements > all / 2) {
    return {permute_to_order(tensor, dim_order).contiguous(), all};
  }
  const auto copies = period_elements / (all / repeats);
  return {block.contiguous().view({1, -1}).expand({copies, -1}).contiguous(), period_elements};
}

} // namespace clampgrad
