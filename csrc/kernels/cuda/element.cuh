// Elements on a GPU, which converts 16 bits in one instruction: compared as floats, moved as bits.

namespace clampgrad::device {
namespace {

// The V for a lane: itself.
template <typename Lane>
CLAMPGRAD_HOST_DEVICE Lane splat(Lane value) {
  return value;
}

template <typename T>
struct AsFloat : ElementOf<T> {
  using Lane = uint16_t;

  static CLAMPGRAD_HOST_DEVICE float key(Lane x) {
    return static_cast<float>(T(x, T::from_bits()));
  }
  static CLAMPGRAD_HOST_DEVICE bool number(Lane x) {
    return key(x) == key(x);
  }
  static CLAMPGRAD_HOST_DEVICE bool comparable(Lane) { // comparisons with NaN are false anyway
    return true;
  }
  static CLAMPGRAD_HOST_DEVICE Lane halved(Lane x) {
    return T(key(x) * 0.5f).x;
  }
  static CLAMPGRAD_HOST_DEVICE Lane quartered(Lane x) {
    return T(key(x) * 0.25f).x;
  }
  static CLAMPGRAD_HOST_DEVICE Lane third(Lane x) { // a float has room for the error of 1 / 3
    return T(key(x) * (1.0f / 3)).x;
  }
};

// Up to 2.12 torch.clamp takes max and min on the GPU, which make +0 greater than -0; since then it
// compares, as on the CPU (pytorch/pytorch#185354).
template <typename T>
struct ElementHere : std::conditional_t<sizeof(T) == 2, AsFloat<T>, ElementOf<T>> {
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13
  template <bool has_lo, bool has_hi, typename V, typename K>
  static CLAMPGRAD_HOST_DEVICE V clamp(V x, K key, bool, const Bounds<V>&, const Bounds<K>& keys) {
    const K raised = has_lo ? std::fmax(key, keys.lo) : key;
    const K clamped = has_hi ? std::fmin(raised, keys.hi) : raised;
    if constexpr (std::is_same_v<V, K>) {
      return key == key ? clamped : x;
    } else {
      return key == key ? T(clamped).x : x;
    }
  }
#endif
};

} // namespace
} // namespace clampgrad::device
