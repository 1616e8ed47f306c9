// The walk over flat memory. Comes after vectors.h or scalars.h.

namespace clampgrad::CLAMPGRAD_ISA {
namespace {

CLAMPGRAD_HOST_DEVICE void clear_above(uint64_t& word, int64_t count) {
  word &= (uint64_t{1} << count) - 1;
}
CLAMPGRAD_HOST_DEVICE void clear_above(const uint64_t&, int64_t) {}

// Calls word(streams, plane) for the words [begin, end), each with the streams moved to it. What
// comes after the last element is 0.
template <typename F, int ins, int outs, typename Lane, typename Word>
CLAMPGRAD_HOST_DEVICE void foreach_word(
    const Streams<ins, outs, Lane, Word>& s, int64_t begin, int64_t end, const F& word) {
  const int64_t plane = words(s.n), full = s.n / kWord < end ? s.n / kWord : end;
  auto here = s;
  for (int64_t w = begin; w < full;) {
    // As far as no input starts again.
    int64_t count = full - w;
    const Lane* from[ins];
    for (int k = 0; k < ins; ++k) {
      const int64_t phase = w % s.period[k], left = s.period[k] - phase;
      from[k] = s.in[k] + phase * kWord;
      count = left < count ? left : count;
    }
    for (int64_t i = 0; i < count; ++i) {
      for (int k = 0; k < ins; ++k) {
        here.in[k] = from[k] + i * kWord;
      }
      for (int k = 0; k < outs; ++k) {
        here.out[k] = outs == 1 || s.out[k] ? s.out[k] + (w + i) * kWord : nullptr;
      }
      here.bits = s.bits + w + i;
      word(here, plane);
    }
    w += count;
  }
  if (full < end) {
    const int64_t first = full * kWord, size = (s.n - first) * static_cast<int64_t>(sizeof(Lane));
    Lane in[ins][kWord] = {}, out[outs][kWord];
    for (int k = 0; k < ins; ++k) {
      std::memcpy(in[k], s.in[k] + full % s.period[k] * kWord, size);
      here.in[k] = in[k];
    }
    for (int k = 0; k < outs; ++k) {
      here.out[k] = s.out[k] ? out[k] : nullptr;
    }
    here.bits = s.bits + full;
    word(here, plane);
    for (int p = 0; p < F::kPlanesWritten; ++p) { // bits of no element are 0
      clear_above(here.bits[p * plane], s.n - first);
    }
    for (int k = 0; k < outs; ++k) {
      if (s.out[k]) {
        std::memcpy(s.out[k] + first, out[k], size);
      }
    }
  }
}

} // namespace
} // namespace clampgrad::CLAMPGRAD_ISA
