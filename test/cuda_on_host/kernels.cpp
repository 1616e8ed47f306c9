// The sources of the CUDA kernels, for the host, behind functions that ctypes can call. Bounds are
// numbers in the dtype; NaN is no bound.

#include "kernels/cuda/gate_kernel.cu"
#include "kernels/cuda/share_kernel.cu"

#include <cmath>

using namespace clampgrad;

namespace {

Flat flat(int dtype, int64_t n) {
  return {static_cast<at::ScalarType>(dtype), n, c10::Device(c10::kCPU)};
}

Number bound(double value) {
  return std::isnan(value) ? Number() : Number(value);
}

} // namespace

extern "C" {

void gate_encode(
    int dtype, int64_t n, void* x, void* y, uint64_t* bits, double lo, double hi, int gate) {
  cuda::gate_encode(flat(dtype, n), x, y, bits, bound(lo), bound(hi), Gate(gate));
}

void gate_decode(int dtype, int64_t n, void* g, uint64_t* bits, void* dx, int gate) {
  cuda::gate_decode(flat(dtype, n), g, bits, dx, Gate(gate));
}

void gate_select(int dtype, int64_t n, void* g, void* x, void* dx, double lo, double hi) {
  cuda::gate_select(flat(dtype, n), g, x, dx, bound(lo), bound(hi));
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
  cuda::pair_encode(
      flat(dtype, n), self, other, y, bits, greater_wins != 0, nan_loses != 0, {tie, nan});
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
  cuda::pair_decode(flat(dtype, n), g, bits, of_self, of_other, Sharing(sharing), from_below != 0);
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
  cuda::triple_encode(flat(dtype, n), x, lo, hi, y, bits, TripleRule(rule), differentiated);
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
  cuda::triple_decode(flat(dtype, n), g, bits, of_x, of_lo, of_hi, Sharing(sharing));
}

void unpack(int64_t n, uint64_t* bits, int planes, int codes, bool* mask) {
  cuda::unpack(flat(0, n), bits, planes, codes, mask);
}
}
