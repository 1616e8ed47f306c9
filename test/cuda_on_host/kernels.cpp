// The sources of the CUDA kernels, for the host, behind functions that ctypes can call; or the
// loops of the CPU that this machine may not run: those for a compiler without a vector extension,
// and those for AVX-512.

#if defined(CLAMPGRAD_SCALAR_LOOPS)
#include "kernels/cpu/kernels.cpp"
#if defined(EMULATE_AVX512)
#include "avx512.h"
#define CLAMPGRAD_SET baseline
#define CLAMPGRAD_VECTOR_BYTES 64
#include "kernels/cpu/every_loop.h"
#else
#include "kernels/cpu/loops_baseline.cpp"
#endif
namespace tested = clampgrad::cpu;
#else
#include "kernels/cuda/gate_kernel.cu"
#include "kernels/cuda/share_kernel.cu"
namespace tested = clampgrad::cuda;
#endif

#include <algorithm>
#include <initializer_list>

using namespace clampgrad;

namespace {

template <typename Call>
void run(
    int dtype,
    int64_t n,
    std::initializer_list<void*> in,
    std::initializer_list<void*> out,
    uint64_t* bits,
    const Call& call) {
  MemoryOf<Call> memory = {{}, {}, {}, bits, n};
  std::copy(in.begin(), in.end(), memory.in);
  std::copy(out.begin(), out.end(), memory.out);
  std::fill_n(memory.period, in.size(), words(n));
  tested::run(c10::kCPU, static_cast<at::ScalarType>(dtype), memory, call);
}

} // namespace

extern "C" {

void gate_encode(
    int dtype,
    int64_t n,
    void* x,
    void* y,
    uint64_t* bits,
    double lo,
    double hi,
    int has_lo,
    int has_hi,
    int gate) {
  run(dtype, n, {x}, {y}, bits, GateEncode{lo, hi, has_lo != 0, has_hi != 0, Gate(gate)});
}

void gate_decode(int dtype, int64_t n, void* g, uint64_t* bits, void* dx, int gate) {
  run(dtype, n, {g}, {dx}, bits, GateDecode{Gate(gate)});
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
  const PairEncode call = {greater_wins != 0, nan_loses != 0, {tie, nan}};
  run(dtype, n, {self, other}, {y}, bits, call);
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
  run(dtype, n, {g}, {of_self, of_other}, bits, PairDecode{Sharing(sharing), from_below != 0});
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
  run(dtype, n, {x, lo, hi}, {y}, bits, TripleEncode{Gradient(rule), differentiated});
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
  run(dtype, n, {g}, {of_x, of_lo, of_hi}, bits, TripleDecode{Sharing(sharing)});
}

void unpack(int64_t n, uint64_t* bits, int planes, int codes, bool* mask) {
  tested::unpack(c10::kCPU, n, bits, planes, codes, mask);
}
}
