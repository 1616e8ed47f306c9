#pragma once
// What a device provides: loops over flat memory, in a namespace of its own. The operators are
// written once for all devices in terms of them (kernels/fused.cpp).

#include "base/number.h"
#include "kernels/rules/conventions.h"

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

namespace clampgrad {

// The memory of one call: n elements each, and the bits that belong to them.
template <int ins, int outs, typename Word>
struct Memory {
  at::ScalarType dtype;
  c10::Device device;
  int64_t n;
  Word* bits;
  void* out[outs]; // null where nobody wants it; may be an input
  const void* in[ins];
  int64_t period[ins]; // Note [Repeated inputs]
};
// A forward reads elements and writes a result and bits. A backward reads a gradient and bits.
template <int ins>
using Forward = Memory<ins, 1, uint64_t>;
template <int outs>
using Backward = Memory<1, outs, const uint64_t>;

// gate_encode raises where a bound is beyond the range of the dtype. unpack says where bit c of
// `codes` is set for the code c.
#define CLAMPGRAD_DECLARE_KERNELS                                                    \
  void gate_encode(const Forward<1>&, const Number& min, const Number& max, Gate);   \
  void gate_decode(const Backward<1>&, Gate);                                        \
  void pair_encode(const Forward<2>&, bool greater_wins, bool nan_loses, PairCodes); \
  void pair_decode(const Backward<2>&, Sharing, bool clamps_from_below);             \
  void triple_encode(const Forward<3>&, TripleRule, int differentiated);             \
  void triple_decode(const Backward<3>&, Sharing);                                   \
  void unpack(c10::Device, int64_t n, const uint64_t* bits, int planes, int64_t codes, bool* mask);

namespace cpu {
CLAMPGRAD_DECLARE_KERNELS
}
namespace cuda {
CLAMPGRAD_DECLARE_KERNELS
}
#undef CLAMPGRAD_DECLARE_KERNELS

// Calls the kernel of a device: one of those that base/path.cpp lets through.
#if defined(CLAMPGRAD_WITH_CUDA)
#define CLAMPGRAD_IF_CUDA(call) call
#else
#define CLAMPGRAD_IF_CUDA(call) TORCH_INTERNAL_ASSERT(false, "clampgrad was built without CUDA")
#endif
#define CLAMPGRAD_CALL_KERNEL(device, kernel, ...) \
  if ((device).is_cuda()) {                        \
    CLAMPGRAD_IF_CUDA(cuda::kernel(__VA_ARGS__));  \
  } else {                                         \
    TORCH_INTERNAL_ASSERT((device).is_cpu());      \
    cpu::kernel(__VA_ARGS__);                      \
  }

} // namespace clampgrad
