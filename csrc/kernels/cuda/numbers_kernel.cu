// Clamps between numbers on the GPU.

#include "kernels/cuda/run.cuh"

namespace clampgrad::cuda {

CLAMPGRAD_RUN(NumberForward)
CLAMPGRAD_RUN(NumberBackward)

namespace {

__global__ void __launch_bounds__(kThreads)
    unpack_kernel(const uint64_t* bits, int per_element, int64_t values, bool* mask, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) {
    int value = 0;
    for (int b = 0; b < per_element; ++b) {
      value |= static_cast<int>(bits[b * words(n) + i / kWord] >> (i % kWord) & 1) << b;
    }
    mask[i] = (values >> value & 1) != 0;
  }
}

} // namespace

void unpack(
    c10::Device device,
    int64_t n,
    const uint64_t* bits,
    int per_element,
    int64_t values,
    bool* mask) {
  launch(device, n, kThreads, unpack_kernel, bits, per_element, values, mask, n);
}

} // namespace clampgrad::cuda
