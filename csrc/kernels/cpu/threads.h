// Words of elements shared among the threads that ATen's own kernels run in.

#pragma once

#include "base/bits.h"

#include <ATen/Config.h>
#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h> // the grain

#include <algorithm>

// Note [One OpenMP runtime]
// ~~~~~~~~~~~~~~~~~~~~~~~~~
// at::parallel_for is a template, so each compiler turns it into calls of its own OpenMP runtime.
// libtorch brings one runtime, and a second one in the process would have threads of its own beside
// it. So this library is compiled without OpenMP, and calls what GCC's, LLVM's and Intel's runtimes
// on Linux all have. The symbols are weak: where libtorch brings none of these runtimes, kernels
// run in the calling thread.
#if defined(__linux__) && AT_PARALLEL_OPENMP
extern "C" {
[[gnu::weak]] void GOMP_parallel(void (*)(void*), void*, unsigned threads, unsigned flags);
[[gnu::weak]] int omp_get_num_threads();
[[gnu::weak]] int omp_get_thread_num();
}
#endif

namespace clampgrad::cpu {

// Calls f(begin, end) for parts of the range of words from 0 to n, which may not throw.
template <typename F>
void in_threads(int64_t n, const F& f) {
#if defined(__linux__) && AT_PARALLEL_OPENMP
  constexpr auto kGrain = at::internal::GRAIN_SIZE / kWord;
  const bool there = GOMP_parallel && omp_get_num_threads && omp_get_thread_num;
  if (there && n > kGrain && at::get_num_threads() > 1 && !at::in_parallel_region()) {
    const auto part = [&]() noexcept { // it is called from C
      const auto parts = std::min<int64_t>(omp_get_num_threads(), (n + kGrain - 1) / kGrain);
      const auto size = (n + parts - 1) / parts;
      const auto begin = omp_get_thread_num() * size;
      if (begin < n) {
        f(begin, std::min(begin + size, n));
      }
    };
    GOMP_parallel(
        [](void* p) { (*static_cast<decltype(part)*>(p))(); },
        const_cast<void*>(static_cast<const void*>(&part)),
        /*threads=*/0, // as many as torch.set_num_threads says
        /*flags=*/0);
    return;
  }
#endif
  if (n > 0) {
    f(0, n);
  }
}

} // namespace clampgrad::cpu
