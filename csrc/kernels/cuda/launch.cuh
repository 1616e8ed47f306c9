#pragma once
// A kernel on the current stream of a device.

#include "kernels/cuda/kernels.cuh"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

namespace clampgrad::cuda {

// One block for every `elements` of the n.
template <typename Kernel, typename... Args>
void launch(c10::Device device, int64_t n, int64_t elements, Kernel kernel, Args... args) {
  if (n == 0) {
    return;
  }
  const c10::cuda::CUDAGuard guard(device);
  const auto blocks = static_cast<unsigned int>((n + elements - 1) / elements);
  kernel<<<blocks, kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(args...);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

// The rows of a tile, for blocks of so many elements per row: 1 if `most` would idle
// multiprocessors.
inline int rows_for(c10::Device device, int64_t n, int64_t elements, int most) {
  int processors = 0;
  C10_CUDA_CHECK(
      cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device.index()));
  return n < processors * most * elements ? 1 : most;
}

} // namespace clampgrad::cuda
