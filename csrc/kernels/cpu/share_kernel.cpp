// Shares on the CPU: one pass forward for the result and the bits, one backward for all gradients.

#include "kernels/backend.h"
#include "kernels/cpu/dispatch.h"

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace clampgrad::cpu {
namespace {

template <typename T>
struct PairIn {
  const T *self, *other;
  T* y;
  PairCodes codes;
};
template <typename T>
struct TripleIn {
  const T *x, *lo, *hi;
  T* y;
  int differentiated;
};
// A gradient that nobody wants is null.
template <typename T>
struct PairOut {
  const T* g;
  T *self, *other;
  bool clamps_from_below;
};
template <typename T>
struct TripleOut {
  const T* g;
  T *x, *lo, *hi;
};

template <typename T>
struct ShareLoops {
  void (*encode_pair[2][2])(const PairIn<T>&, uint64_t*, int64_t, int64_t, int64_t);
  void (*encode_triple[5])(const TripleIn<T>&, uint64_t*, int64_t, int64_t, int64_t);
  void (*decode_pair[kSharings])(const PairOut<T>&, const uint64_t*, int64_t, int64_t, int64_t);
  void (*decode_triple[kSharings])(const TripleOut<T>&, const uint64_t*, int64_t, int64_t, int64_t);
};

} // namespace
} // namespace clampgrad::cpu

#define CLAMPGRAD_LOOPS "kernels/cpu/share_loops.h"
#include "kernels/cpu/foreach_isa.h"

namespace clampgrad::cpu {
namespace {

template <typename T>
const ShareLoops<T>& best_loops() {
  static const ShareLoops<T> chosen = [] {
#if defined(CLAMPGRAD_X86_ISAS)
    if (isas().avx512) {
      return avx512::share_loops<T>();
    }
    if (isas().avx2) {
      return avx2::share_loops<T>();
    }
#endif
    return baseline::share_loops<T>();
  }();
  return chosen;
}

constexpr int64_t kGrain = at::internal::GRAIN_SIZE / kWord;

template <typename T>
const T* in(const void* p) {
  return static_cast<const T*>(p);
}
template <typename T>
T* out(void* p) {
  return static_cast<T*>(p);
}

template <typename F>
void foreach_words(int64_t n, F f) {
  at::parallel_for(0, words(n), kGrain, f);
}

} // namespace

void pair_encode(
    const Flat& flat,
    const void* self,
    const void* other,
    void* y,
    uint64_t* bits,
    bool greater_wins,
    bool nan_loses,
    PairCodes codes) {
  dispatch(flat.dtype, "maximum", [&](auto element, auto) {
    using T = decltype(element);
    const PairIn<T> pair = {in<T>(self), in<T>(other), out<T>(y), codes};
    const auto loop = best_loops<T>().encode_pair[greater_wins][nan_loses];
    foreach_words(
        flat.n, [&](int64_t begin, int64_t end) { loop(pair, bits, flat.n, begin, end); });
  });
}

void triple_encode(
    const Flat& flat,
    const void* x,
    const void* lo,
    const void* hi,
    void* y,
    uint64_t* bits,
    Rule rule,
    int differentiated) {
  dispatch(flat.dtype, "clamp", [&](auto element, auto) {
    using T = decltype(element);
    const TripleIn<T> triple = {in<T>(x), in<T>(lo), in<T>(hi), out<T>(y), differentiated};
    const auto loop = best_loops<T>().encode_triple[int64_t(rule)];
    foreach_words(
        flat.n, [&](int64_t begin, int64_t end) { loop(triple, bits, flat.n, begin, end); });
  });
}

void pair_decode(
    const Flat& flat,
    const void* g,
    const uint64_t* bits,
    void* of_self,
    void* of_other,
    Sharing sharing,
    bool clamps_from_below) {
  dispatch(flat.dtype, "maximum_backward", [&](auto element, auto) {
    using T = decltype(element);
    const PairOut<T> pair = {in<T>(g), out<T>(of_self), out<T>(of_other), clamps_from_below};
    const auto loop = best_loops<T>().decode_pair[int64_t(sharing)];
    foreach_words(
        flat.n, [&](int64_t begin, int64_t end) { loop(pair, bits, flat.n, begin, end); });
  });
}

void triple_decode(
    const Flat& flat,
    const void* g,
    const uint64_t* bits,
    void* of_x,
    void* of_lo,
    void* of_hi,
    Sharing sharing) {
  dispatch(flat.dtype, "clamp_backward", [&](auto element, auto) {
    using T = decltype(element);
    const TripleOut<T> triple = {in<T>(g), out<T>(of_x), out<T>(of_lo), out<T>(of_hi)};
    const auto loop = best_loops<T>().decode_triple[int64_t(sharing)];
    foreach_words(
        flat.n, [&](int64_t begin, int64_t end) { loop(triple, bits, flat.n, begin, end); });
  });
}

} // namespace clampgrad::cpu
