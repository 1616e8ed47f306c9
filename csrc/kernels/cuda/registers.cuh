// The values in registers: an element, or a pair of 16-bit numbers. Comes after the Ops.

namespace clampgrad::device {
namespace {

// One element, and the mask of an Op.
template <typename T>
struct SingleRegister {
  using V = Lane<T>;
  using Mask = bool;
  static constexpr int kPackedValues = 1; // in a V

  static CLAMPGRAD_HOST_DEVICE V pack(const V (&values)[1]) {
    return values[0];
  }
  static CLAMPGRAD_HOST_DEVICE V unpack(V x, int) {
    return x;
  }
  static CLAMPGRAD_HOST_DEVICE bool mask(const bool (&recorded)[1]) {
    return recorded[0];
  }
  static CLAMPGRAD_HOST_DEVICE bool bit(bool recorded, int) {
    return recorded;
  }
  template <typename Op>
  static CLAMPGRAD_HOST_DEVICE const Op& of(const Op& op) {
    return op;
  }

  // The bits of a vector of elements, the first element's lowest: expand_bits() prepares them for
  // reading, and mask_at() reads those of element i.
  static CLAMPGRAD_HOST_DEVICE uint32_t expand_bits(uint32_t bits) {
    return bits;
  }
  static CLAMPGRAD_HOST_DEVICE bool mask_at(uint32_t expanded, int i) {
    return (expanded >> i & 1u) != 0;
  }
  // put() collects the masks of a tile, word() makes a word of them, and compact_bits() a byte for
  // each row.
  static CLAMPGRAD_HOST_DEVICE void put(uint32_t& masks, int row, int i, bool recorded) {
    masks |= uint32_t{recorded} << (8 * row + i);
  }
  static CLAMPGRAD_HOST_DEVICE uint32_t word(uint32_t masks) {
    return masks;
  }
  static CLAMPGRAD_HOST_DEVICE uint32_t compact_bits(uint32_t bits) {
    return bits;
  }
};

// Two numbers in a register.
template <typename T>
struct PairRegister {
  using V = Pair<T>;
  using Mask = WordMask;
  static constexpr int kPackedValues = 2; // in a V

  static CLAMPGRAD_HOST_DEVICE V pack(const uint16_t (&values)[2]) {
    return V::of(values[0], values[1]);
  }
  static CLAMPGRAD_HOST_DEVICE uint16_t unpack(V x, int i) {
    return static_cast<uint16_t>(x.bits >> 16 * i);
  }
  static CLAMPGRAD_HOST_DEVICE WordMask mask(const bool (&recorded)[2]) {
    return WordMask((recorded[0] ? 0xffffu : 0) | (recorded[1] ? 0xffff0000u : 0));
  }
  static CLAMPGRAD_HOST_DEVICE bool bit(WordMask recorded, int i) {
    return (recorded.bits >> 16 * i & 1u) != 0;
  }
  // Returns the Op for this V. Only the Op of a clamp between numbers holds values.
  template <typename Op>
  static CLAMPGRAD_HOST_DEVICE const Op& of(const Op& op) {
    return op;
  }
  template <BitFormat format, bool has_lo, bool has_hi, typename E>
  static CLAMPGRAD_HOST_DEVICE auto of(
      const NumberForwardOp<format, has_lo, has_hi, E, uint16_t>& op) {
    const auto both = [](uint16_t x) { return V::of(x, x); };
    const auto key = [&](float x) { return both(T(x).x); };
    return NumberForwardOp<format, has_lo, has_hi, E, V>{
        {}, {both(op.values.lo), both(op.values.hi)}, {key(op.keys.lo), key(op.keys.hi)}};
  }

  // Copies the 8 bits to 23 places higher. One shift then moves the bits of two neighbouring
  // elements to bits 7 and 31, which expand_sign_bits() reads.
  static CLAMPGRAD_HOST_DEVICE uint32_t expand_bits(uint32_t bits) {
    return bits * 0x800001;
  }
  static __device__ __forceinline__ WordMask mask_at(uint32_t expanded, int i) {
    return WordMask(cuda::expand_sign_bits(expanded << (7 - i)));
  }
  // One instruction for both: those of even elements in the lower half, of odd ones in the upper.
  // Rows 2 and 3 lie between the elements of rows 0 and 1, and change places with half of them.
  static CLAMPGRAD_HOST_DEVICE void put(uint32_t& masks, int row, int i, WordMask recorded) {
    masks |= recorded.bits & 0x10001u << (8 * (row % 2) + row / 2 + i);
  }
  static CLAMPGRAD_HOST_DEVICE uint32_t word(uint32_t masks) {
    return masks;
  }
  static CLAMPGRAD_HOST_DEVICE uint32_t compact_bits(uint32_t bits) {
    const uint32_t differ = (bits ^ bits >> 15) & 0xaaaa;
    return bits ^ differ ^ differ << 15;
  }
};

} // namespace
} // namespace clampgrad::device
