#pragma once
// From a call to the kernel with the Op for it.

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/packed.cuh"
#include "kernels/rules/conventions.h"

#include <ATen/Dispatch.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <cmath>

// clang-format off: each stands on those before it
#define CLAMPGRAD_INSTANCE device
#include "kernels/rules/all.h"
#include "kernels/cuda/element.cuh"
#include "kernels/rules/ops.h"
#include "kernels/cuda/registers.cuh"
#include "kernels/cuda/triple.cuh"
#undef CLAMPGRAD_INSTANCE
// clang-format on

namespace clampgrad::cuda {

// Whether accesses of 16 bytes are allowed: all results, and all inputs that are read so, lie at
// multiples of 16.
template <typename Call, typename Lane>
bool is_aligned(const Buffers<Call, Lane>& s, const Layouts<Call>& layouts) {
  bool aligned = std::all_of(std::begin(s.out), std::end(s.out), [](const void* at) {
    return reinterpret_cast<uintptr_t>(at) % 16 == 0;
  });
  for (int k = 0; k < Call::kIn; ++k) {
    aligned = aligned && can_load_vectors(layouts[k], Row<Lane>::kVector, s.in[k]);
  }
  return aligned;
}

template <typename Call>
void run(
    c10::Device device,
    at::ScalarType dtype,
    const Buffers<Call>& memory,
    const Layouts<Call>& layouts,
    const Call& call) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "clampgrad", [&] {
    using T = Lane<scalar_t>;
    using E = device::CudaElement<scalar_t>;
    constexpr int64_t block_row = int64_t{kThreads / kWarpSize} * Row<T>::kElements; // elements
    const auto s = cast_buffers<T>(memory);
    const bool aligned = is_aligned(s, layouts);
    const auto launch_op = [&](auto op, auto inputs) {
      const int rows = rows_for(device, s.n, block_row, kRows);
      const auto kernel = op_kernel<T, decltype(op), decltype(inputs)>;
      launch(device, s.n, rows * block_row, kernel, op, s, inputs, aligned, rows);
    };
    const auto launch_flat = [&](auto op) { launch_op(op, FlatInputs()); };
    const auto launch_strided = [&](auto op) {
      launch_op(op, make_strided_inputs(layouts, aligned ? Row<T>::kVector : 1));
    };
    const bool flat = std::all_of(
        layouts.begin(), layouts.end(), [](const Layout& layout) { return layout.is_flat(); });
    if constexpr (std::is_same_v<Call, TensorForward<3>>) {
      const auto op = device::compare_triple<E>(call);
      flat ? launch_flat(op) : launch_strided(op);
    } else if constexpr (accepts_strided_inputs<Call>) {
      device::dispatch_op<E>(call, [&](auto op) { flat ? launch_flat(op) : launch_strided(op); });
    } else {
      TORCH_INTERNAL_ASSERT(flat); // the caller copies
      device::dispatch_op<E>(call, launch_flat);
    }
  });
}

// A macro, because kernels are compiled in two files, and a template would have all in both.
#define CLAMPGRAD_RUN(Call) \
  template void run<Call>(  \
      c10::Device, at::ScalarType, const Buffers<Call>&, const Layouts<Call>&, const Call&);

} // namespace clampgrad::cuda
