#pragma once
// Gates: what a clamp between numbers records for its backward.
//
// Note [Bit planes]
// ~~~~~~~~~~~~~~~~~
// A fused forward records a code of one to three bits per element, which is all that its backward
// needs of the inputs. Codes are stored as bit planes: bit p of the code of element i is bit i of
// plane p. Each plane consists of whole 64-bit words, and the bits beyond the last element are 0.
// Elements are counted in memory order, see Note [Memory order]. With numbers for bounds the code
// is that of a gate (below); with Tensors it has a bit per argument (sharing_codes.h). The rules
// pack and unpack codes (kernels/rules/).

#include <cstdint>

#if defined(__CUDACC__)
#define CLAMPGRAD_HOST_DEVICE __host__ __device__ __forceinline__
#elif defined(_MSC_VER)
#define CLAMPGRAD_HOST_DEVICE __forceinline
#else
#define CLAMPGRAD_HOST_DEVICE inline __attribute__((always_inline))
#endif

namespace clampgrad {

// The values are part of saved graphs: append, do not reorder.
enum class Gate : int64_t {
  strict = 0, // open strictly between the bounds: min_norm and joint, whose numbers are constants
  inclusive = 1, // open at the bounds too
  half = 2, // minimum(maximum(x, lo), hi) with every tie shared equally
  with_grad = 3, // outside, open where a descent step moves x back
  with_grad_maximize = 4, // ... where an ascent step does
  restoring = 5, // outside, the descent direction back, of length 1
  restoring_maximize = 6, // ... the ascent direction
};
constexpr int64_t kGates = 7;
// Gates whose gradient is a linear function of g: only those have a tangent.
constexpr bool is_linear(Gate gate) {
  return gate == Gate::strict || gate == Gate::inclusive || gate == Gate::half;
}

constexpr int planes(Gate gate) {
  return gate == Gate::strict || gate == Gate::inclusive ? 1 : 2;
}

// Planes are made of words of 64 elements, each plane of whole words.
constexpr int64_t kWord = 64;

constexpr int64_t words(int64_t n) {
  return (n + kWord - 1) / kWord;
}
// The code of element i of n.
CLAMPGRAD_HOST_DEVICE int code_of(const uint64_t* bits, int planes, int64_t n, int64_t i) {
  int code = 0;
  for (int p = 0; p < planes; ++p) {
    code |= static_cast<int>(bits[p * words(n) + i / kWord] >> (i % kWord) & 1) << p;
  }
  return code;
}
constexpr int64_t planes_bytes(int planes, int64_t n) {
  return planes * words(n) * 8;
}

// Codes of one plane: 0 shut, 1 open. Of two planes:
//
//                    0     1       2      3
//   Gate::half       0     1       1/2    1/4     what x gets of g
//   pseudo-gradient  NaN   inside  below  above   where x lies, seen from the result

} // namespace clampgrad
