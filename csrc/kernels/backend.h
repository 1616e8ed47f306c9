#pragma once
// What a device provides: loops over flat memory, in a namespace of its own. The operators are
// written once for all devices in terms of them (kernels/fused.cpp).

#include "kernels/call.h"

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

namespace clampgrad {

// run() is there for each of the calls. unpack() says where bit c of `codes` is set for the code c.
#define CLAMPGRAD_DECLARE_KERNELS                                            \
  template <typename Call>                                                   \
  void run(c10::Device, at::ScalarType, const MemoryOf<Call>&, const Call&); \
  void unpack(c10::Device, int64_t n, const uint64_t* bits, int planes, int64_t codes, bool* mask);

namespace cpu {
CLAMPGRAD_DECLARE_KERNELS
}
namespace cuda {
CLAMPGRAD_DECLARE_KERNELS
}
#undef CLAMPGRAD_DECLARE_KERNELS

// In the namespace of a device, where run() is defined.
#define CLAMPGRAD_RUN(Call) \
  template void run<Call>(c10::Device, at::ScalarType, const MemoryOf<Call>&, const Call&);

// Calls the kernel of a device: one of those that base/path.cpp lets through.
#if defined(CLAMPGRAD_WITH_CUDA)
#define CLAMPGRAD_IF_CUDA(call) call
#else
#define CLAMPGRAD_IF_CUDA(call) TORCH_INTERNAL_ASSERT(false, "clampgrad was built without CUDA")
#endif
#define CLAMPGRAD_CALL_KERNEL(kernel, device, ...)        \
  if ((device).is_cuda()) {                               \
    CLAMPGRAD_IF_CUDA(cuda::kernel(device, __VA_ARGS__)); \
  } else {                                                \
    TORCH_INTERNAL_ASSERT((device).is_cpu());             \
    cpu::kernel(device, __VA_ARGS__);                     \
  }

} // namespace clampgrad
