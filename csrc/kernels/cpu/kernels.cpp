// The kernels of the CPU: the best loop for this machine and dtype, over words that ATen's threads
// share.

#include "kernels/cpu/loops.h"
#include "kernels/cpu/threads.h"

#include <ATen/Dispatch.h>
#include <ATen/Version.h>

#include <algorithm>

namespace clampgrad::cpu {

namespace {

// For the instruction set that ATen uses here; the environment variable ATEN_CPU_CAPABILITY can
// lower it.
template <typename T, typename Call>
Loop<T, Call> best_loop() {
#if defined(CLAMPGRAD_X86_ISAS)
  const auto capability = at::get_cpu_capability();
  if (capability == "AVX512") {
    return avx512::loop<T, Call>();
  }
  if (capability == "AVX2") {
    return avx2::loop<T, Call>();
  }
#endif
  return baseline::loop<T, Call>();
}

} // namespace

template <typename Call>
void run(c10::Device, at::ScalarType dtype, const MemoryOf<Call>& memory, const Call& call) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "clampgrad", [&] {
    static const auto loop = best_loop<scalar_t, Call>();
    const auto s = lanes_of<Lane<scalar_t>>(memory);
    in_threads(words(s.n), [&](int64_t begin, int64_t end) { loop(s, call, begin, end); });
  });
}

CLAMPGRAD_FOR_EACH_CALL(CLAMPGRAD_RUN)

void unpack(c10::Device, int64_t n, const uint64_t* bits, int planes, int64_t codes, bool* mask) {
  in_threads(words(n), [&](int64_t begin, int64_t end) {
    for (int64_t w = begin; w < end; ++w) {
      uint64_t chosen = 0;
      for (int code = 0; code < 1 << planes; ++code) {
        uint64_t here = -(codes >> code & 1); // everywhere, if the code is one of them
        for (int p = 0; p < planes; ++p) {
          here &= bits[p * words(n) + w] ^ ((code >> p & 1) - uint64_t{1});
        }
        chosen |= here;
      }
      const auto count = std::min(n - w * kWord, kWord);
      for (int64_t i = 0; i < count; ++i) {
        mask[w * kWord + i] = chosen >> i & 1;
      }
    }
  });
}

} // namespace clampgrad::cpu
