// The sources of the CUDA kernels, for the host, behind functions that ctypes can call.

#include "base/convention.cpp"
#include "kernels/cuda/numbers_kernel.cu"
#include "kernels/cuda/tensors_kernel.cu"

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
  Buffers<Call> memory = {{}, {}, {}, bits, n};
  std::copy(in.begin(), in.end(), memory.in);
  std::copy(out.begin(), out.end(), memory.out);
  std::fill_n(memory.period, in.size(), words(n));
  cuda::run(c10::kCPU, static_cast<at::ScalarType>(dtype), memory, call);
}

} // namespace

extern "C" {

void number_forward(
    int dtype,
    int64_t n,
    void* x,
    void* y,
    uint64_t* bits,
    double lo,
    double hi,
    int has_lo,
    int has_hi,
    const char* gradient,
    int maximize) {
  const auto c = parse_convention(gradient, maximize != 0);
  run(dtype, n, {x}, {y}, bits, NumberForward{lo, hi, has_lo != 0, has_hi != 0, c});
}

void number_backward(
    int dtype, int64_t n, void* g, uint64_t* bits, void* dx, const char* gradient, int maximize) {
  run(dtype, n, {g}, {dx}, bits, NumberBackward{parse_convention(gradient, maximize != 0)});
}

void pair_forward(
    int dtype,
    int64_t n,
    void* self,
    void* other,
    void* y,
    uint64_t* bits,
    const char* extremum,
    const char* gradient,
    int differentiated) {
  const auto c = parse_convention(gradient, false);
  const PairForward call = {parse_extremum(extremum), c.gradient, differentiated};
  run(dtype, n, {self, other}, {y}, bits, call);
}

void pair_backward(
    int dtype,
    int64_t n,
    void* g,
    uint64_t* bits,
    void* of_self,
    void* of_other,
    const char* extremum,
    const char* gradient,
    int maximize) {
  const auto c = parse_convention(gradient, maximize != 0);
  run(dtype, n, {g}, {of_self, of_other}, bits, PairBackward{parse_extremum(extremum), c});
}

void triple_forward(
    int dtype,
    int64_t n,
    void* x,
    void* lo,
    void* hi,
    void* y,
    uint64_t* bits,
    const char* gradient,
    int differentiated) {
  const auto c = parse_convention(gradient, false);
  run(dtype, n, {x, lo, hi}, {y}, bits, TripleForward{c.gradient, differentiated});
}

void triple_backward(
    int dtype,
    int64_t n,
    void* g,
    uint64_t* bits,
    void* of_x,
    void* of_lo,
    void* of_hi,
    const char* gradient,
    int maximize) {
  const auto c = parse_convention(gradient, maximize != 0);
  run(dtype, n, {g}, {of_x, of_lo, of_hi}, bits, TripleBackward{c});
}
}
