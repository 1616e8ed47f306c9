#pragma once
// Words, shared out among ATen's threads.

#include "base/bits.h"

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h> // the grain

namespace clampgrad {

// f(begin, end) over the words of n elements, one thread per grain of ATen.
template <typename F>
void foreach_words(int64_t n, const F& f) {
  at::parallel_for(0, words(n), at::internal::GRAIN_SIZE / kWord, f);
}

} // namespace clampgrad
