#pragma once
// Declares the instruction sets. Each has a loop over flat memory for every call and dtype.
//
// loops_<set>.cpp compiles the loops of one set (instantiate_loops.h). run_loop.h selects the set.

#include "kernels/call.h"
#include "kernels/rules/conventions.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstring>

namespace clampgrad {

// A call, over the words from one to another.
template <typename T, typename Call>
using Loop = void (*)(const Buffers<Call, Lane<T>>&, const Call&, int64_t begin, int64_t end);

namespace baseline {
template <typename T, typename Call>
Loop<T, Call> loop();
}
#if defined(__x86_64__)
namespace avx2 {
template <typename T, typename Call>
Loop<T, Call> loop();
}
namespace avx512 {
template <typename T, typename Call>
Loop<T, Call> loop();
}
#endif

} // namespace clampgrad
