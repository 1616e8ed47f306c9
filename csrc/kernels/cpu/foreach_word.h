// The loop over flat memory, by words of 64 elements, for one instruction set. An Op without bits
// makes values alone. Comes after the rules and masks.h.

namespace clampgrad::CLAMPGRAD_INSTANCE {
namespace {

template <typename Op>
using BuffersOf = Buffers<typename Op::Call, typename Op::E::Lane>;

// A word of elements: its bits are written by a forward, and read by a backward. `stride`: from the
// words of one bit to those of the next.
template <typename Op>
CLAMPGRAD_HOST_DEVICE void run_word(const Op& op, const BuffersOf<Op>& s, int64_t stride) {
  using Call = typename Op::Call;
  using L = typename Op::E::Lane;
  using M = Mask<Vector<L>>;
  constexpr bool has_bits = Op::kBits > 0;
  constexpr int array_size = has_bits ? Op::kBits : 1; // no array is empty
  std::conditional_t<is_forward<Call>, WordPacker<M>, uint64_t> recorded[array_size];
  if constexpr (!is_forward<Call>) {
    for_each_unrolled<Op::kBits>([&](int b) { recorded[b] = s.bits[b * stride]; });
  }
  for (int i = 0; i < kElementsPerWord; i += lanes<L>) {
    Vector<L> in[Call::kIn], out[Call::kOut];
    M bits[array_size];
    for_each_unrolled<Call::kIn>([&](int k) { in[k] = load(s.in[k] + i); });
    if constexpr (!is_forward<Call>) {
      for_each_unrolled<Op::kBits>([&](int b) { bits[b] = from_bits<M>(recorded[b], i); });
    }
    if constexpr (has_bits) {
      op(in, bits, out);
    } else {
      op(in, out);
    }
    for_each_unrolled<Call::kOut>([&](int k) {
      if (Call::kOut == 1 || s.out[k]) {
        store(s.out[k] + i, out[k]);
      }
    });
    if constexpr (is_forward<Call>) {
      for_each_unrolled<Op::kBits>([&](int b) { recorded[b].set(i, bits[b]); });
    }
  }
  if constexpr (is_forward<Call>) {
    for_each_unrolled<Op::kBits>([&](int b) { s.bits[b * stride] = recorded[b].bits(); });
  }
}

// Runs the whole words [begin, end). It is not inlined, because its code is long and called twice.
// Everything is passed by value, so no store can change it and bounds stay in registers.
template <typename Op>
C10_NOINLINE void foreach_whole_word(
    BuffersOf<Op> s, int64_t begin, int64_t end, int64_t stride, Op op) {
  using Call = typename Op::Call;
  auto here = s;
  for (int64_t w = begin; w < end;) {
    int64_t count = end - w; // up to where an input repeats
    decltype(here.in) from;
    for (int k = 0; k < Call::kIn; ++k) {
      const int64_t phase = w % s.period_words[k], left = s.period_words[k] - phase;
      from[k] = s.in[k] + phase * kElementsPerWord;
      count = left < count ? left : count;
    }
    for (int64_t i = 0; i < count; ++i) {
      for_each_unrolled<Call::kIn>([&](int k) { here.in[k] = from[k] + i * kElementsPerWord; });
      for_each_unrolled<Call::kOut>([&](int k) {
        here.out[k] = Call::kOut == 1 || s.out[k] ? s.out[k] + (w + i) * kElementsPerWord : nullptr;
      });
      if constexpr (Op::kBits > 0) {
        here.bits = s.bits + w + i;
      }
      run_word(op, here, stride);
    }
    w += count;
  }
}

// Runs any words. An incomplete last word is copied, and padded with zeros.
template <typename Op>
CLAMPGRAD_HOST_DEVICE void foreach_word(
    const BuffersOf<Op>& s, int64_t begin, int64_t end, const Op& op) {
  using Call = typename Op::Call;
  using L = typename Op::E::Lane;
  const int64_t stride = word_count(s.n),
                full = s.n / kElementsPerWord < end ? s.n / kElementsPerWord : end;
  foreach_whole_word(s, begin, full, stride, op);
  if (full == end) {
    return;
  }
  const int64_t first = full * kElementsPerWord,
                size = (s.n - first) * static_cast<int64_t>(sizeof(L));
  L in[Call::kIn][kElementsPerWord] = {}, out[Call::kOut][kElementsPerWord];
  auto part = s;
  for (int k = 0; k < Call::kIn; ++k) {
    std::memcpy(in[k], s.in[k] + full % s.period_words[k] * kElementsPerWord, size);
    part.in[k] = in[k];
    part.period_words[k] = 1;
  }
  for (int k = 0; k < Call::kOut; ++k) {
    part.out[k] = s.out[k] ? out[k] : nullptr;
  }
  if constexpr (Op::kBits > 0) {
    part.bits = s.bits + full;
  }
  foreach_whole_word(part, 0, 1, stride, op);
  if constexpr (is_forward<Call> && Op::kBits > 0) {
    for (int b = 0; b < Op::kBits; ++b) { // bits beyond the end are 0
      part.bits[b * stride] &= (uint64_t{1} << (s.n - first)) - 1;
    }
  }
  for (int k = 0; k < Call::kOut; ++k) {
    if (s.out[k]) {
      std::memcpy(s.out[k] + first, out[k], size);
    }
  }
}

// torch.fmax and fmin are the C library's: for a NaN and a number the result is the number, or NaN
// if the NaN signals. torch converts float16 first, after which no NaN signals.
template <typename T>
struct CpuElement : ElementFor<T> {
  template <typename V>
  static CLAMPGRAD_HOST_DEVICE V fmax(const V (&in)[2], V result) {
    if constexpr (!std::is_same_v<T, c10::Half>) {
      using Bits = decltype(V() == V()); // signed lanes of that size
      using Lane = decltype(lane_of(Bits()));
      // The highest bit of the mantissa says that a NaN does not signal.
      constexpr Lane quiet = Lane{1} << (std::numeric_limits<T>::digits - 2);
      constexpr Lane magnitude = std::numeric_limits<Lane>::max();
      constexpr Lane quiet_nan = magnitude ^ (quiet - 1);
      for (int k = 1; k >= 0; --k) { // of two, the first
        const auto x = reinterpret_cast<Bits>(in[k]);
        const auto signals = lt(Bits() + quiet_nan, Bits((x ^ quiet) & magnitude));
        result =
            reinterpret_cast<V>(select(signals, Bits(x | quiet), reinterpret_cast<Bits>(result)));
      }
    }
    return result;
  }
};

#if CLAMPGRAD_VECTOR_BYTES >= 32
// 16-bit numbers, clamped with the fewest masks: unsigned keys are counted from an infinity, so
// that NaNs, which lie beyond it, wrap around to the other side.
template <typename T>
struct UnsignedCompareElement : CpuElement<T> {
#if CLAMPGRAD_VECTOR_BYTES == 64
  // The sign is shifted.
  template <typename V, typename K = typename CpuElement<T>::template Key<V>>
  static CLAMPGRAD_HOST_DEVICE K key(V x) {
    const K sign = K(x) >> 15;
    return K(((K(x) & int16_t(0x7fff)) ^ sign) - sign);
  }
#endif
  template <bool has_lo, bool has_hi, typename V, typename K>
  static CLAMPGRAD_HOST_DEVICE V
  clamp(V value, K key, Mask<K>, const Bounds<V>& values, const Bounds<K>& keys) {
    constexpr uint16_t lowest = ElementFor<T>::infinity ^ 0x8000; // an integer, as K has it
    if constexpr (has_lo) {
      value = select(lt(K(V(key) + lowest), K(V(keys.lo) + lowest)), values.lo, value);
    }
    if constexpr (has_hi) {
      value = select(lt(K(lowest - V(key)), K(lowest - V(keys.hi))), values.hi, value);
    }
    return value;
  }
};
#endif

#if CLAMPGRAD_VECTOR_BYTES == 64
// Floats, clamped by the instructions for the maximum and the minimum: Note [vmaxps].
template <typename T>
struct MaxInstructionElement : CpuElement<T> {
  template <bool has_lo, bool has_hi, typename V>
  static V clamp(V value, V, Mask<V>, const Bounds<V>&, const Bounds<V>& keys) {
    // Compare with the keys. Where lo > hi, both values are hi, and an x that is hi but for the
    // sign of a zero would stay.
    const V raised = has_lo ? max_instruction(value, keys.lo) : value;
    return has_hi ? min_instruction(raised, keys.hi) : raised;
  }
};
#endif

} // namespace

template <typename E, typename T, typename Call>
Loop<T, Call> make_loop() {
  return [](const Buffers<Call, Lane<T>>& s, const Call& call, int64_t begin, int64_t end) {
    dispatch_op<E>(call, [&](auto op) { foreach_word(s, begin, end, op); });
#if defined(__AVX__)
    // GCC omits this where a loop takes its bounds in registers. Without it, what runs next on
    // Intel's processors depends on the upper halves of its registers, until somebody clears them.
    __builtin_ia32_vzeroupper();
#endif
  };
}

template <typename T, typename Call>
Loop<T, Call> loop() {
  if constexpr (std::is_base_of_v<NumberValues, Call>) {
#if CLAMPGRAD_VECTOR_BYTES == 64
    if (__builtin_cpu_is("amd")) {
      using E =
          std::conditional_t<sizeof(T) == 2, UnsignedCompareElement<T>, MaxInstructionElement<T>>;
      return make_loop<E, T, Call>();
    }
#elif CLAMPGRAD_VECTOR_BYTES == 32
    if constexpr (sizeof(T) == 2) {
      return make_loop<UnsignedCompareElement<T>, T, Call>();
    }
#endif
  }
  return make_loop<CpuElement<T>, T, Call>();
}

} // namespace clampgrad::CLAMPGRAD_INSTANCE
