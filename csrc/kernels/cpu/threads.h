// Words of elements shared among the threads that ATen's own kernels run in.

#pragma once

#include "base/bits.h"

#include <ATen/TensorIterator.h> // the grain
#include <c10/util/Exception.h>
#include <torch/csrc/stable/c/shim.h>

namespace clampgrad::cpu {

// Note [One OpenMP runtime]
// ~~~~~~~~~~~~~~~~~~~~~~~~~
// at::parallel_for is a template, so each compiler turns it into calls of its own OpenMP runtime. A
// second runtime in the process would have threads of its own beside those of libtorch's. So this
// library is compiled without OpenMP, and calls the one that is compiled in libtorch.

// Calls f(begin, end) for parts of the range of words from 0 to n, which may not throw.
template <typename F>
void parallel_for_words(int64_t n, const F& f) {
  constexpr auto kGrain = at::internal::GRAIN_SIZE / kElementsPerWord;
  if (n <= kGrain) {
    if (n > 0) {
      f(0, n);
    }
    return;
  }
  const auto call = [](int64_t begin, int64_t end, void* context) {
    (*static_cast<const F*>(context))(begin, end);
  };
  const auto failed = torch_parallel_for(0, n, kGrain, call, const_cast<F*>(&f));
  TORCH_INTERNAL_ASSERT(failed == AOTI_TORCH_SUCCESS);
}

} // namespace clampgrad::cpu
