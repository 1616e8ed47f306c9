#pragma once
// Selects the loop of an instruction set, and runs it over all elements.

#include "kernels/cpu/instruction_sets.h"
#include "kernels/cpu/threads.h"

#include <ATen/Dispatch.h>
#include <ATen/Version.h>

namespace clampgrad::cpu {

// Without bits to write, and with elements of 32 or 64 bits, AVX2 computes as fast as memory is
// read, and a Zen 4 stores faster with it than with AVX-512. ATen has no other loop for a clamp.
template <typename T, typename Call>
constexpr bool kAvx2Suffices = std::is_same_v<Call, NumberValues> && sizeof(T) >= sizeof(float);

// For the instruction set that ATen uses here (the variable ATEN_CPU_CAPABILITY can lower it).
template <typename T, typename Call>
Loop<T, Call> select_loop() {
#if defined(__x86_64__)
  const auto capability = at::get_cpu_capability();
  if (capability == "AVX512" && !kAvx2Suffices<T, Call>) {
    return avx512::loop<T, Call>();
  }
  if (capability == "AVX2" || capability == "AVX512") {
    return avx2::loop<T, Call>();
  }
#endif
  return baseline::loop<T, Call>();
}

// Runs the loop of this dtype, in ATen's threads.
template <typename Call>
void run_loop(const Call& call, at::ScalarType dtype, const Buffers<Call>& memory) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "clampgrad", [&] {
    static const auto loop = select_loop<scalar_t, Call>();
    const auto s = cast_buffers<Lane<scalar_t>>(memory);
    parallel_for_words(
        word_count(s.n), [&](int64_t begin, int64_t end) { loop(s, call, begin, end); });
  });
}

} // namespace clampgrad::cpu
