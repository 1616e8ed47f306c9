// The sources of the CUDA kernels, for the host, behind functions that ctypes can call; or the
// loops of the CPU for a compiler without a vector extension. Bounds are numbers in the dtype; NaN
// is no bound.

#if defined(CLAMPGRAD_SCALAR_LOOPS)
#include "kernels/cpu/kernels.cpp"
#include "kernels/cpu/loops_baseline.cpp"
namespace tested = clampgrad::cpu;
#else
#include "kernels/cuda/gate_kernel.cu"
#include "kernels/cuda/share_kernel.cu"
namespace tested = clampgrad::cuda;
#endif

#include <algorithm>
#include <cmath>

using namespace clampgrad;

namespace {

template <size_t ins>
Forward<ins> forward(int dtype, int64_t n, void* const (&in)[ins], void* y, uint64_t* bits) {
  Forward<ins> m = {static_cast<at::ScalarType>(dtype), c10::kCPU, n, bits, {y}, {}, {}};
  std::copy(in, in + ins, m.in);
  std::fill(m.period, m.period + ins, n);
  return m;
}

template <size_t outs>
Backward<outs> backward(int dtype, int64_t n, void* g, uint64_t* bits, void* const (&out)[outs]) {
  Backward<outs> m = {static_cast<at::ScalarType>(dtype), c10::kCPU, n, bits, {}, {g}, {n}};
  std::copy(out, out + outs, m.out);
  return m;
}

Number bound(double value) {
  return std::isnan(value) ? Number() : Number(value);
}

} // namespace

extern "C" {

void gate_encode(
    int dtype, int64_t n, void* x, void* y, uint64_t* bits, double lo, double hi, int gate) {
  tested::gate_encode(forward(dtype, n, {x}, y, bits), bound(lo), bound(hi), Gate(gate));
}

void gate_decode(int dtype, int64_t n, void* g, uint64_t* bits, void* dx, int gate) {
  tested::gate_decode(backward(dtype, n, g, bits, {dx}), Gate(gate));
}

void pair_encode(
    int dtype,
    int64_t n,
    void* self,
    void* other,
    void* y,
    uint64_t* bits,
    int greater_wins,
    int nan_loses,
    int tie,
    int nan) {
  tested::pair_encode(
      forward(dtype, n, {self, other}, y, bits), greater_wins != 0, nan_loses != 0, {tie, nan});
}

void pair_decode(
    int dtype,
    int64_t n,
    void* g,
    uint64_t* bits,
    void* of_self,
    void* of_other,
    int sharing,
    int from_below) {
  tested::pair_decode(
      backward(dtype, n, g, bits, {of_self, of_other}), Sharing(sharing), from_below != 0);
}

void triple_encode(
    int dtype,
    int64_t n,
    void* x,
    void* lo,
    void* hi,
    void* y,
    uint64_t* bits,
    int rule,
    int differentiated) {
  tested::triple_encode(forward(dtype, n, {x, lo, hi}, y, bits), TripleRule(rule), differentiated);
}

void triple_decode(
    int dtype,
    int64_t n,
    void* g,
    uint64_t* bits,
    void* of_x,
    void* of_lo,
    void* of_hi,
    int sharing) {
  tested::triple_decode(backward(dtype, n, g, bits, {of_x, of_lo, of_hi}), Sharing(sharing));
}

void unpack(int64_t n, uint64_t* bits, int planes, int codes, bool* mask) {
  tested::unpack(c10::kCPU, n, bits, planes, codes, mask);
}
}
