// The walk over flat memory. Comes after vectors.h or scalars.h.

namespace clampgrad::CLAMPGRAD_ISA {
namespace {

// Calls word(streams, plane) for the whole words [begin, end), each with the streams moved to it.
// A word is long, so this should stand in the code once: it is a function that both callers below
// share. It takes copies, which no store can change, so that bounds stay in registers.
template <typename F, typename Streams>
void foreach_whole_word(Streams s, int64_t begin, int64_t end, int64_t plane, F word) {
  auto here = s;
  for (int64_t w = begin; w < end;) {
    int64_t count = end - w; // as far as no input starts again
    decltype(here.in) from;
    for (int k = 0; k < Streams::kIn; ++k) {
      const int64_t phase = w % s.period[k], left = s.period[k] - phase;
      from[k] = s.in[k] + phase * kWord;
      count = left < count ? left : count;
    }
    for (int64_t i = 0; i < count; ++i) {
      for (int k = 0; k < Streams::kIn; ++k) {
        here.in[k] = from[k] + i * kWord;
      }
      for (int k = 0; k < Streams::kOut; ++k) {
        here.out[k] = Streams::kOut == 1 || s.out[k] ? s.out[k] + (w + i) * kWord : nullptr;
      }
      here.bits = s.bits + w + i;
      word(here, plane);
    }
    w += count;
  }
}

// The same for any words. Where the last one is not whole, its elements are copied to memory of a
// whole word, whose other elements are 0.
template <typename F, int ins, int outs, typename Lane, typename Word>
CLAMPGRAD_HOST_DEVICE void foreach_word(
    const Streams<ins, outs, Lane, Word>& s, int64_t begin, int64_t end, const F& word) {
  const int64_t plane = words(s.n), full = s.n / kWord < end ? s.n / kWord : end;
  foreach_whole_word(s, begin, full, plane, word);
  if (full == end) {
    return;
  }
  const int64_t first = full * kWord, size = (s.n - first) * static_cast<int64_t>(sizeof(Lane));
  Lane in[ins][kWord] = {}, out[outs][kWord];
  auto part = s;
  for (int k = 0; k < ins; ++k) {
    std::memcpy(in[k], s.in[k] + full % s.period[k] * kWord, size);
    part.in[k] = in[k];
    part.period[k] = 1;
  }
  for (int k = 0; k < outs; ++k) {
    part.out[k] = s.out[k] ? out[k] : nullptr;
  }
  part.bits = s.bits + full;
  foreach_whole_word(part, 0, 1, plane, word);
  if constexpr (!std::is_const_v<Word>) {
    for (int p = 0; p < F::Op::kPlanes; ++p) { // bits of no element are 0
      part.bits[p * plane] &= (uint64_t{1} << (s.n - first)) - 1;
    }
  }
  for (int k = 0; k < outs; ++k) {
    if (s.out[k]) {
      std::memcpy(s.out[k] + first, out[k], size);
    }
  }
}

} // namespace
} // namespace clampgrad::CLAMPGRAD_ISA
