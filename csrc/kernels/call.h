#pragma once
// What a fused kernel is called with: flat memory, and what to do there.

#include "base/bits.h"
#include "kernels/rules/conventions.h"

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <type_traits>

namespace clampgrad {

// Elements that are walked together, n of each, and the bits that belong to them.
template <int ins, int outs, typename Lane, typename Word>
struct Streams {
  static constexpr int kIn = ins, kOut = outs;
  const Lane* in[ins];
  int64_t period[ins]; // in words, see Note [Repeated inputs]
  Lane* out[outs]; // null where nobody wants it; may be an input
  Word* bits;
  int64_t n;
};

// What moves per element: 16-bit numbers as their bits.
template <typename T>
using Lane = std::conditional_t<sizeof(T) == 2, uint16_t, T>;

// ---- Calls --------------------------------------------------------------------------------------
// An encoding call reads elements and writes a result and bits; a decoding one reads a gradient and
// bits, and writes a gradient for each argument.

struct GateEncode {
  static constexpr int kIn = 1, kOut = 1;
  using Word = uint64_t;
  double lo, hi; // as lanes: a double holds any of them exactly
  bool has_lo, has_hi;
  Gate gate;
};

struct GateDecode {
  static constexpr int kIn = 1, kOut = 1;
  using Word = const uint64_t;
  Gate gate;
};

struct PairEncode {
  static constexpr int kIn = 2, kOut = 1;
  using Word = uint64_t;
  bool greater_wins, nan_loses;
  PairCodes codes;
};

struct PairDecode {
  static constexpr int kIn = 1, kOut = 2;
  using Word = const uint64_t;
  Sharing sharing;
  bool clamps_from_below;
};

struct TripleEncode {
  static constexpr int kIn = 3, kOut = 1;
  using Word = uint64_t;
  Gradient rule;
  int differentiated;
};

struct TripleDecode {
  static constexpr int kIn = 1, kOut = 3;
  using Word = const uint64_t;
  Sharing sharing;
};

#define CLAMPGRAD_FOR_EACH_CALL(_) \
  _(GateEncode) _(GateDecode) _(PairEncode) _(PairDecode) _(TripleEncode) _(TripleDecode)

template <typename Call>
constexpr bool encodes = !std::is_const_v<typename Call::Word>;

// Its memory, as elements of one type, or of a type that is known at run time alone.
template <typename Call, typename Lane = void>
using MemoryOf = Streams<Call::kIn, Call::kOut, Lane, typename Call::Word>;

template <typename Lane, int ins, int outs, typename Word>
Streams<ins, outs, Lane, Word> lanes_of(const Streams<ins, outs, void, Word>& memory) {
  Streams<ins, outs, Lane, Word> s = {{}, {}, {}, memory.bits, memory.n};
  for (int k = 0; k < ins; ++k) {
    s.in[k] = static_cast<const Lane*>(memory.in[k]);
    s.period[k] = memory.period[k];
  }
  for (int k = 0; k < outs; ++k) {
    s.out[k] = static_cast<Lane*>(memory.out[k]);
  }
  return s;
}

// ---- What a device provides ---------------------------------------------------------------------
// Loops over flat memory, in a namespace of its own. The operators are written once for all devices
// in terms of them (kernels/fused.cpp).

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

// Instantiates run() for a call: in the namespace of a device, after its definition.
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
