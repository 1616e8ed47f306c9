#pragma once
// What a device brings: loops over flat memory. The operators stand on them once for all devices
// (kernels/gate.cpp, kernels/shares.cpp).

#include "base/number.h"
#include "kernels/rules/conventions.h"

#include <c10/core/Device.h>
#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>

#include <optional>

namespace clampgrad {

// The elements of one call: all pointers are to `n` of them.
struct Flat {
  at::ScalarType dtype;
  int64_t n;
  c10::Device device;
};

// y may be x. Raises where a bound is beyond the range of the dtype.
using GateEncode = void(
    const Flat&,
    const void* x,
    void* y,
    uint64_t* bits,
    const Number& min,
    const Number& max,
    Gate);
using GateDecode = void(const Flat&, const void* g, const uint64_t* bits, void* dx, Gate);

// dx = g where Gate::strict is open at x, without recorded bits.
using GateSelect =
    void(const Flat&, const void* g, const void* x, void* dx, const Number& min, const Number& max);

using PairEncode = void(
    const Flat&,
    const void* self,
    const void* other,
    void* y,
    uint64_t* bits,
    bool greater_wins,
    bool nan_loses,
    PairCodes);
using TripleEncode = void(
    const Flat&,
    const void* x,
    const void* lo,
    const void* hi,
    void* y,
    uint64_t* bits,
    TripleRule,
    int differentiated);

// A gradient that nobody wants is null.
using PairDecode = void(
    const Flat&,
    const void* g,
    const uint64_t* bits,
    void* of_self,
    void* of_other,
    Sharing,
    bool clamps_from_below);
using TripleDecode = void(
    const Flat&,
    const void* g,
    const uint64_t* bits,
    void* of_x,
    void* of_lo,
    void* of_hi,
    Sharing);

// Bit planes -> where bit c of `codes` is set for the code c; of `flat`, the dtype is of no
// interest.
using Unpack = void(const Flat& flat, const uint64_t* bits, int planes, int64_t codes, bool* mask);

struct Backend {
  GateEncode* gate_encode;
  GateDecode* gate_decode;
  GateSelect* gate_select;
  PairEncode* pair_encode;
  TripleEncode* triple_encode;
  PairDecode* pair_decode;
  TripleDecode* triple_decode;
  Unpack* unpack;
};

// Of a device with kernels here: those that csrc/base/path.cpp lets through.
const Backend& backend(c10::Device device);

// Each device has these in a namespace of its own.
#define CLAMPGRAD_DECLARE_KERNELS \
  GateEncode gate_encode;         \
  GateDecode gate_decode;         \
  GateSelect gate_select;         \
  PairEncode pair_encode;         \
  TripleEncode triple_encode;     \
  PairDecode pair_decode;         \
  TripleDecode triple_decode;     \
  Unpack unpack;

namespace cpu {
CLAMPGRAD_DECLARE_KERNELS
}
namespace cuda {
CLAMPGRAD_DECLARE_KERNELS
}
#undef CLAMPGRAD_DECLARE_KERNELS

} // namespace clampgrad
