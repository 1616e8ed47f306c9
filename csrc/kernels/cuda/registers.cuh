// What a kernel computes with: an element, or a pair of 16-bit numbers. Comes after the Ops.

namespace clampgrad::device {
namespace {

// The V for an element, and what an Op records there: a mask, or a bit that was looked up.
template <typename T>
struct Single {
  using V = Lane<T>;
  using Mask = bool;
  using Bit = uint32_t;
  static constexpr int kLanes = 1;

  static CLAMPGRAD_HOST_DEVICE V joined(const V (&lanes)[1]) {
    return lanes[0];
  }
  static CLAMPGRAD_HOST_DEVICE V lane(V x, int) {
    return x;
  }
  static CLAMPGRAD_HOST_DEVICE bool mask(const bool (&lanes)[1]) {
    return lanes[0];
  }
  template <typename Recorded>
  static CLAMPGRAD_HOST_DEVICE bool bit(Recorded recorded, int) {
    return recorded;
  }
  template <typename Op>
  static CLAMPGRAD_HOST_DEVICE const Op& of(const Op& op) {
    return op;
  }

  // Of the bits of a vector, the lowest of its first element: how they are read, those of element
  // i, and how they are put together.
  static CLAMPGRAD_HOST_DEVICE uint32_t spread(uint32_t bits) {
    return bits;
  }
  static CLAMPGRAD_HOST_DEVICE bool mask_at(uint32_t spread, int i) {
    return (spread >> i & 1u) != 0;
  }
  template <typename Recorded>
  static CLAMPGRAD_HOST_DEVICE uint32_t at(int i, Recorded recorded) {
    return static_cast<uint32_t>(recorded) << i;
  }
  static CLAMPGRAD_HOST_DEVICE uint32_t gathered(uint32_t bits) {
    return bits;
  }
};

// Two bits that were looked up: 0 and 17.
struct PairBit {
  uint32_t bits;
};

// The same for two numbers in a register.
template <typename T>
struct Packed {
  using V = Pair<T>;
  using Mask = PairMask;
  using Bit = PairBit;
  static constexpr int kLanes = 2;

  static CLAMPGRAD_HOST_DEVICE V joined(const uint16_t (&lanes)[2]) {
    return V::of(lanes[0], lanes[1]);
  }
  static CLAMPGRAD_HOST_DEVICE uint16_t lane(V x, int i) {
    return static_cast<uint16_t>(x.bits >> 16 * i);
  }
  static CLAMPGRAD_HOST_DEVICE PairMask mask(const bool (&lanes)[2]) {
    return PairMask((lanes[0] ? 0xffffu : 0) | (lanes[1] ? 0xffff0000u : 0));
  }
  static CLAMPGRAD_HOST_DEVICE bool bit(PairMask recorded, int i) {
    return (recorded.bits >> 16 * i & 1u) != 0;
  }
  static CLAMPGRAD_HOST_DEVICE bool bit(PairBit recorded, int i) {
    return (recorded.bits >> 17 * i & 1u) != 0;
  }
  // The Op for this V. Only that of a clamp between numbers holds values.
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

  // The 8 bits twice, the second time 23 places higher: so any two neighbours are moved to the
  // signs of the lowest and the highest byte at once.
  static CLAMPGRAD_HOST_DEVICE uint32_t spread(uint32_t bits) {
    return bits * 0x800001;
  }
  static __device__ __forceinline__ PairMask mask_at(uint32_t spread, int i) {
    return PairMask(cuda::signs2(spread << (7 - i)));
  }
  // Those of even elements in the lower half, of odd ones in the upper.
  static CLAMPGRAD_HOST_DEVICE uint32_t at(int i, PairMask recorded) {
    return recorded.bits & (1u << i | 0x20000u << i);
  }
  static CLAMPGRAD_HOST_DEVICE uint32_t at(int i, PairBit recorded) {
    return recorded.bits << i;
  }
  static CLAMPGRAD_HOST_DEVICE uint32_t gathered(uint32_t bits) {
    return (bits | bits >> 16) & 0xff;
  }
};

} // namespace
} // namespace clampgrad::device
