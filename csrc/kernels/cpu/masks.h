// From masks to the 64 bits of a word, and back.

namespace clampgrad::CLAMPGRAD_INSTANCE {
namespace {

#if CLAMPGRAD_VECTOR_BYTES == 64
// A mask is bits, a k register.

template <typename M>
struct WordPacker {
  uint64_t word = 0;

  CLAMPGRAD_HOST_DEVICE void set(int element, M mask) {
    word |= static_cast<uint64_t>(mask) << element;
  }
  CLAMPGRAD_HOST_DEVICE uint64_t bits() const {
    return word;
  }
};

template <typename M>
CLAMPGRAD_HOST_DEVICE M from_bits(uint64_t word, int element) {
  auto mask = static_cast<M>(word >> element & all_true<M>());
#if defined(__clang__)
  // Clang simplifies the masks that share a word again and again, which takes minutes for a loop.
  CLAMPGRAD_HIDE("+k", mask);
#endif
  return mask;
}

#else
// A mask is a vector.

// Returns one bit per lane. Uses intrinsics, because compilers do not generate this instruction
// from portable code.
template <typename M>
CLAMPGRAD_HOST_DEVICE uint64_t to_bits(M mask) {
  constexpr int n = sizeof(M) / sizeof(lane_of(M()));
#if CLAMPGRAD_VECTOR_BYTES == 32
  const auto m = reinterpret_cast<__m256i>(mask);
  if constexpr (n == 4) {
    return static_cast<uint32_t>(_mm256_movemask_pd(_mm256_castsi256_pd(m)));
  } else {
    static_assert(n == 8, "WordPacker packs 16-bit lanes");
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

#if defined(__AARCH64EL__)
// Returns the bits of all vectors of a word. A lane is all ones or all zeros, and so is half of it:
// two vectors are narrowed to one, until lanes are bytes. Then each byte keeps the bit of its
// place, and the bytes of eight places are added to one.
template <int bytes, int count>
CLAMPGRAD_HOST_DEVICE uint64_t to_bits(const uint8x16_t (&masks)[count]) {
  if constexpr (bytes == 1) {
    static_assert(count == 4);
    const uint8x16_t each = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const auto low = vpaddq_u8(masks[0] & each, masks[1] & each);
    const auto quads = vpaddq_u8(low, vpaddq_u8(masks[2] & each, masks[3] & each));
    return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(quads, quads)), 0);
  } else {
    uint8x16_t halves[count / 2];
    for (int i = 0; i < count / 2; ++i) {
      const auto a = masks[2 * i], b = masks[2 * i + 1];
      if constexpr (bytes == 8) {
        halves[i] = uint8x16_t(vuzp1q_u32(uint32x4_t(a), uint32x4_t(b)));
      } else if constexpr (bytes == 4) {
        halves[i] = uint8x16_t(vuzp1q_u16(uint16x8_t(a), uint16x8_t(b)));
      } else {
        halves[i] = vuzp1q_u8(a, b);
      }
    }
    return to_bits<bytes / 2>(halves);
  }
}
#endif

// Collects the masks of the 64 elements of a word, vector after vector, and packs them.
template <typename M>
struct WordPacker {
  static constexpr int kVectorLanes = sizeof(M) / sizeof(lane_of(M()));
  M masks[kElementsPerWord / kVectorLanes];

  CLAMPGRAD_HOST_DEVICE void set(int element, M mask) {
    masks[element / kVectorLanes] = mask;
  }

  CLAMPGRAD_HOST_DEVICE uint64_t bits() const {
#if defined(__AARCH64EL__)
    uint8x16_t bytes[kElementsPerWord / kVectorLanes];
    std::memcpy(bytes, masks, sizeof(bytes));
    return to_bits<16 / kVectorLanes>(bytes);
#else
    uint64_t word = 0;
#if CLAMPGRAD_VECTOR_BYTES == 32
    if constexpr (kVectorLanes == 16) { // two vectors at once
      for (int i = 0; i < kElementsPerWord / kVectorLanes; i += 2) {
        const auto bytes = _mm256_packs_epi16(
            reinterpret_cast<__m256i>(masks[i]), reinterpret_cast<__m256i>(masks[i + 1]));
        word |= uint64_t{static_cast<uint32_t>(_mm256_movemask_epi8(bytes))} << i * kVectorLanes;
      }
      // The instruction takes halves of the two in turn; swapping bits costs less than halves.
      word ^= ((word ^ word >> 8) & 0x0000ff000000ff00) * 0x101;
    } else
#endif
    {
      for (int i = 0; i < kElementsPerWord / kVectorLanes; ++i) {
        word |= to_bits(masks[i]) << i * kVectorLanes;
      }
    }
    return word;
#endif
  }
};

template <typename Lane>
struct PowersOfTwo {
  static constexpr int count = 8 * sizeof(Lane);
  Lane values[count];
  constexpr PowersOfTwo() : values() {
    for (int i = 0; i < count; ++i) {
      values[i] = static_cast<Lane>(Lane(1) << i);
    }
  }
};

// Returns a mask of the bits of a word from `element` on. Fills every lane with as many bits of the
// word as it holds. These bits serve several vectors, so the compiler fills the lanes once, and
// each call tests its own bits.
template <typename M>
CLAMPGRAD_HOST_DEVICE M from_bits(uint64_t word, int element) {
  using Lane = decltype(lane_of(M()));
  constexpr int lane_bits = PowersOfTwo<Lane>::count;
  static constexpr PowersOfTwo<Lane> powers;
  M each;
  std::memcpy(&each, powers.values + element % lane_bits, sizeof(each));
  const auto part =
      static_cast<Lane>(word >> (element / lane_bits * lane_bits)); // sanitizers make it an int
  return ((M() + part) & each) != M();
}
#endif

} // namespace
} // namespace clampgrad::CLAMPGRAD_INSTANCE
