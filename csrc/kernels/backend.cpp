#include "kernels/backend.h"

#include <c10/util/Exception.h>

namespace clampgrad {

const Backend& backend(c10::Device device) {
#if defined(CLAMPGRAD_WITH_CUDA)
  static constexpr Backend kCuda = {
      cuda::gate_encode,
      cuda::gate_decode,
      cuda::gate_select,
      cuda::pair_encode,
      cuda::triple_encode,
      cuda::pair_decode,
      cuda::triple_decode,
      cuda::unpack};
  if (device.is_cuda()) {
    return kCuda;
  }
#endif
  static constexpr Backend kCpu = {
      cpu::gate_encode,
      cpu::gate_decode,
      cpu::gate_select,
      cpu::pair_encode,
      cpu::triple_encode,
      cpu::pair_decode,
      cpu::triple_decode,
      cpu::unpack};
  TORCH_INTERNAL_ASSERT(device.is_cpu(), "clampgrad was built without kernels for ", device);
  return kCpu;
}

} // namespace clampgrad
