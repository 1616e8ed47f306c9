// The sources of the CUDA kernels, for the host, behind operators.

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "base/convention.cpp"
#include "kernels/cuda/numbers_kernel.cu"
#include "kernels/cuda/tensors_kernel.cu"
#include "kernels/dim_order.cpp"

#include <algorithm>
#include <string>

using namespace clampgrad;
using at::Tensor;
using Tensors = std::vector<std::optional<Tensor>>;

namespace {

void* data(const std::optional<Tensor>& t) {
  return t ? t->data_ptr() : nullptr;
}

// The inputs have the shape of the outputs, but need not lie as these do.
template <typename Call>
void run(const Tensors& in, const Tensors& out, const Tensor& bits, const Call& call) {
  const auto some =
      std::find_if(out.begin(), out.end(), [](const auto& t) { return t.has_value(); });
  const auto dim_order = dim_order_of(**some);
  Buffers<Call> memory = {};
  memory.bits = static_cast<uint64_t*>(bits.data_ptr());
  memory.n = (*some)->numel();
  std::transform(out.begin(), out.end(), memory.out, data);
  std::array<StridedInput, Call::kIn> from;
  cuda::Layouts<Call> layouts;
  for (size_t k = 0; k < in.size(); ++k) {
    from[k] = to_strided_input(*in[k], dim_order);
    memory.in[k] = from[k].tensor.data_ptr();
    layouts[k] = from[k].layout;
  }
  cuda::run(c10::kCPU, in[0]->scalar_type(), memory, layouts, call);
}

// How many dimensions of an input lead to an element, and with which strides; none if it is copied.
std::vector<int64_t> layout(const Tensor& in, const Tensor& out) {
  const auto [tensor, layout] = to_strided_input(in, dim_order_of(out));
  return tensor.is_alias_of(in) ? std::vector<int64_t>(layout.stride, layout.stride + layout.dims)
                                : std::vector<int64_t>();
}

void number_forward(
    const Tensor& x,
    const Tensor& y,
    const Tensor& bits,
    std::optional<double> lo,
    std::optional<double> hi,
    std::string gradient,
    bool maximize) {
  const auto c = parse_convention(gradient, maximize);
  const auto has_lo = lo.has_value(), has_hi = hi.has_value();
  run({x}, {y}, bits, NumberForward{lo.value_or(0), hi.value_or(0), has_lo, has_hi, c.gradient});
}

void number_backward(
    const Tensor& g, const Tensor& bits, const Tensor& dx, std::string gradient, bool maximize) {
  run({g}, {dx}, bits, Backward<1>{parse_convention(gradient, maximize)});
}

// Of two Tensors with the name of an operator, and of three without.
void forward(
    const Tensors& in,
    const Tensor& y,
    const Tensor& bits,
    std::optional<std::string> extremum,
    std::string gradient,
    int64_t differentiated) {
  const auto rule = parse_convention(gradient, false).gradient;
  const int set = static_cast<int>(differentiated);
  if (extremum) {
    run(in, {y}, bits, TensorForward<2>{rule, set, parse_pair_operator(*extremum)});
  } else {
    run(in, {y}, bits, TensorForward<3>{rule, set});
  }
}

void backward(
    const Tensor& g,
    const Tensor& bits,
    const Tensors& out,
    std::optional<std::string> extremum,
    std::string gradient,
    bool maximize) {
  const auto c = parse_convention(gradient, maximize);
  if (extremum) {
    run({g}, out, bits, Backward<2>{c, parse_pair_operator(*extremum)});
  } else {
    run({g}, out, bits, Backward<3>{c});
  }
}

} // namespace

TORCH_LIBRARY(NAME, m) {
  m.def("layout", layout);
  m.def("number_forward", number_forward);
  m.def("number_backward", number_backward);
  m.def("forward", forward);
  m.def("backward", backward);
}
