// Vectors of the instruction set at hand, and 64 bits to masks and back. Compiled once per
// instruction set (every_loop.h): no include guard. No inline functions of the standard library:
// compiled here, they could be linked into code that runs on an older machine.

namespace clampgrad::CLAMPGRAD_ISA {
namespace {

template <typename Lane>
struct VectorOf {
  typedef Lane type __attribute__((vector_size(CLAMPGRAD_VECTOR_BYTES)));
};
template <typename Lane>
using Vector = typename VectorOf<Lane>::type;

template <typename Lane>
constexpr int lanes = CLAMPGRAD_VECTOR_BYTES / sizeof(Lane);

template <typename Lane>
CLAMPGRAD_HOST_DEVICE Vector<Lane> load(const Lane* from) {
  Vector<Lane> v;
  std::memcpy(&v, from, sizeof(v));
  return v;
}
template <typename Lane>
CLAMPGRAD_HOST_DEVICE void store(Lane* to, Vector<Lane> v) {
  std::memcpy(to, &v, sizeof(v));
}
template <typename Lane>
CLAMPGRAD_HOST_DEVICE Vector<Lane> splat(Lane value) {
  Vector<Lane> v;
  for (int i = 0; i < lanes<Lane>; ++i) {
    v[i] = value;
  }
  return v;
}

template <typename M>
CLAMPGRAD_HOST_DEVICE auto lane_of(M mask) {
  return mask[0];
}

// One bit per lane. Compilers do not find the instruction for it.
template <typename M>
CLAMPGRAD_HOST_DEVICE uint64_t to_bits(M mask) {
  constexpr int n = sizeof(M) / sizeof(lane_of(M()));
#if CLAMPGRAD_VECTOR_BYTES == 64
  const auto m = reinterpret_cast<__m512i>(mask);
  if constexpr (n == 8) {
    return _mm512_movepi64_mask(m);
  } else if constexpr (n == 16) {
    return _mm512_movepi32_mask(m);
  } else {
    return _mm512_movepi16_mask(m);
  }
#elif CLAMPGRAD_VECTOR_BYTES == 32
  const auto m = reinterpret_cast<__m256i>(mask);
  if constexpr (n == 4) {
    return static_cast<uint32_t>(_mm256_movemask_pd(_mm256_castsi256_pd(m)));
  } else {
    static_assert(n == 8, "WordOf packs 16-bit lanes");
    return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(m)));
  }
#elif defined(__SSE2__)
  const auto m = reinterpret_cast<__m128i>(mask);
  if constexpr (n == 2) {
    return static_cast<uint32_t>(_mm_movemask_pd(_mm_castsi128_pd(m)));
  } else if constexpr (n == 4) {
    return static_cast<uint32_t>(_mm_movemask_ps(_mm_castsi128_ps(m)));
  } else {
    return static_cast<uint32_t>(_mm_movemask_epi8(_mm_packs_epi16(m, _mm_setzero_si128())));
  }
#else
  uint64_t bits = 0;
  for (int i = 0; i < n; ++i) {
    bits |= static_cast<uint64_t>(mask[i] & 1) << i;
  }
  return bits;
#endif
}

// The masks of a word's 64 elements, a vector at a time, and its bits.
template <typename M>
struct WordOf {
  static constexpr int kLanes = sizeof(M) / sizeof(lane_of(M()));
  M masks[kWord / kLanes];

  CLAMPGRAD_HOST_DEVICE void set(int element, M mask) {
    masks[element / kLanes] = mask;
  }

  CLAMPGRAD_HOST_DEVICE uint64_t bits() const {
    uint64_t word = 0;
#if CLAMPGRAD_VECTOR_BYTES == 32
    if constexpr (kLanes == 16) { // two vectors at once
      for (int i = 0; i < kWord / kLanes; i += 2) {
        const auto bytes = _mm256_packs_epi16(
            reinterpret_cast<__m256i>(masks[i]), reinterpret_cast<__m256i>(masks[i + 1]));
        word |= uint64_t{static_cast<uint32_t>(_mm256_movemask_epi8(bytes))} << i * kLanes;
      }
      // The halves of the two alternate. Swapped here, they cost less than in a vector.
      word ^= ((word ^ word >> 8) & 0x0000ff000000ff00) * 0x101;
    } else
#endif
    {
      for (int i = 0; i < kWord / kLanes; ++i) {
        word |= to_bits(masks[i]) << i * kLanes;
      }
    }
    return word;
  }
};

template <typename Lane>
struct Powers {
  static constexpr int count = 8 * sizeof(Lane);
  Lane of_2[count];
  constexpr Powers() : of_2() {
    for (int i = 0; i < count; ++i) {
      of_2[i] = static_cast<Lane>(Lane(1) << i);
    }
  }
};

// The bits of a word from `element` on, one per lane. A lane has room for the bits of several
// vectors, so that these share what is in every lane, and each looks at bits of its own.
template <typename M>
CLAMPGRAD_HOST_DEVICE M from_bits(uint64_t word, int element) {
  using Lane = decltype(lane_of(M()));
  constexpr int room = Powers<Lane>::count;
#if CLAMPGRAD_VECTOR_BYTES == 64
  if constexpr (sizeof(M) / sizeof(Lane) > room) {
    return reinterpret_cast<M>(_mm512_movm_epi16(static_cast<uint32_t>(word >> element)));
  } else
#endif
  {
    static constexpr Powers<Lane> powers;
    M each;
    std::memcpy(&each, powers.of_2 + element % room, sizeof(each));
    return ((M() + static_cast<Lane>(word >> (element / room * room))) & each) != M();
  }
}

} // namespace
} // namespace clampgrad::CLAMPGRAD_ISA
