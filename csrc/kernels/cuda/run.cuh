#pragma once
// From a call to the kernel with the Op for it.

#include "kernels/cuda/launch.cuh"
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
#include "kernels/cuda/triple.cuh"
#undef CLAMPGRAD_INSTANCE
// clang-format on

namespace clampgrad::cuda {

// Whether accesses of 16 bytes are allowed: every pointer that is not null is a multiple of 16.
template <typename Call, typename Lane>
bool is_aligned(const Buffers<Call, Lane>& s) {
  const auto fits = [](const void* at) { return reinterpret_cast<uintptr_t>(at) % 16 == 0; };
  return std::all_of(std::begin(s.in), std::end(s.in), fits) &&
      std::all_of(std::begin(s.out), std::end(s.out), fits);
}

template <typename Call>
void run(c10::Device device, at::ScalarType dtype, const Buffers<Call>& memory, const Call& call) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "clampgrad", [&] {
    using T = Lane<scalar_t>;
    using E = device::ElementHere<scalar_t>;
    constexpr int64_t elements = int64_t{kThreads / kLanes} * Row<T>::kElements; // of a block's row
    const auto s = lanes_of<T>(memory);
    const int rows = rows_for(device, s.n, elements);
    const auto run = [&](auto op) {
      launch(device, s.n, rows * elements, op_kernel<T, decltype(op)>, op, s, is_aligned(s), rows);
    };
    if constexpr (std::is_same_v<Call, TensorForward<3>>) {
      run(device::LookUpTriple<E>{{}, device::table_of(call)});
    } else {
      device::with_op<E>(call, run);
    }
  });
}

// A macro, because kernels are compiled in two files, and a template would have all in both.
#define CLAMPGRAD_RUN(Call) \
  template void run<Call>(c10::Device, at::ScalarType, const Buffers<Call>&, const Call&);

} // namespace clampgrad::cuda
