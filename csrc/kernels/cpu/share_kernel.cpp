// Shares on the CPU: one pass forward for the result and the bits, one backward for all gradients.

#include "kernels/backend.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/dispatch.h"

namespace clampgrad::cpu {

namespace {

template <typename T>
const ShareLoops<T>& best_share_loops() {
  static const auto best = CLAMPGRAD_BEST(share_loops<T>());
  return best;
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
  dispatch(flat.dtype, "maximum", [&](auto scalar) {
    using T = decltype(scalar);
    const auto loop = best_share_loops<T>().encode_pair[greater_wins][nan_loses];
    const Encoded<2, Lane<T>> s = {{in<T>(self), in<T>(other)}, {out<T>(y)}, bits, flat.n};
    foreach_words(flat.n, [&](int64_t begin, int64_t end) { loop(s, begin, end, codes); });
  });
}

void triple_encode(
    const Flat& flat,
    const void* x,
    const void* lo,
    const void* hi,
    void* y,
    uint64_t* bits,
    TripleRule rule,
    int differentiated) {
  dispatch(flat.dtype, "clamp", [&](auto scalar) {
    using T = decltype(scalar);
    const auto loop = best_share_loops<T>().encode_triple[int64_t(rule)];
    const Encoded<3, Lane<T>> s = {{in<T>(x), in<T>(lo), in<T>(hi)}, {out<T>(y)}, bits, flat.n};
    foreach_words(flat.n, [&](int64_t begin, int64_t end) { loop(s, begin, end, differentiated); });
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
  dispatch(flat.dtype, "maximum_backward", [&](auto scalar) {
    using T = decltype(scalar);
    const auto loop = best_share_loops<T>().decode_pair[int64_t(sharing)];
    const Decoded<2, Lane<T>> s = {{in<T>(g)}, {out<T>(of_self), out<T>(of_other)}, bits, flat.n};
    foreach_words(
        flat.n, [&](int64_t begin, int64_t end) { loop(s, begin, end, clamps_from_below); });
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
  dispatch(flat.dtype, "clamp_backward", [&](auto scalar) {
    using T = decltype(scalar);
    const auto loop = best_share_loops<T>().decode_triple[int64_t(sharing)];
    const Decoded<3, Lane<T>> s = {
        {in<T>(g)}, {out<T>(of_x), out<T>(of_lo), out<T>(of_hi)}, bits, flat.n};
    foreach_words(flat.n, [&](int64_t begin, int64_t end) { loop(s, begin, end); });
  });
}

} // namespace clampgrad::cpu
