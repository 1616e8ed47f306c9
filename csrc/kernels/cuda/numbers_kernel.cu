// Gates on the GPU: one pass forward, one pass backward.

#include "kernels/cuda/run.cuh"

namespace clampgrad::cuda {

CLAMPGRAD_RUN(GateEncode)
CLAMPGRAD_RUN(GateDecode)

namespace {

__global__ void __launch_bounds__(kThreads)
    unpack_kernel(const uint64_t* bits, int planes, int64_t codes, bool* mask, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) {
    int code = 0;
    for (int p = 0; p < planes; ++p) {
      code |= static_cast<int>(bits[p * words(n) + i / kWord] >> (i % kWord) & 1) << p;
    }
    mask[i] = (codes >> code & 1) != 0;
  }
}

} // namespace

void unpack(
    c10::Device device, int64_t n, const uint64_t* bits, int planes, int64_t codes, bool* mask) {
  launch(device, n, kThreads, unpack_kernel, bits, planes, codes, mask, n);
}

} // namespace clampgrad::cuda
