// Elements on a GPU, which converts 16 bits in one instruction: compared as floats, moved as bits.

namespace clampgrad::device {
namespace {

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
  static CLAMPGRAD_HOST_DEVICE V
  clamp(V x, K key, bool comparable, const Bounds<V>& values, const Bounds<K>& keys) {
    if constexpr (std::is_floating_point_v<V>) {
      const V raised = has_lo ? std::fmax(x, values.lo) : x;
      return x == x ? (has_hi ? std::fmin(raised, values.hi) : raised) : x;
    } else { // of two zeros, the signs decide; one select after the other, or there would be
             // branches
      V y = x;
      if constexpr (has_lo) {
        y = select(eq(key, keys.lo), V(y & values.lo), y);
        y = select(lt(key, keys.lo), values.lo, y);
        key = larger(key, keys.lo);
      }
      if constexpr (has_hi) {
        y = select(eq(key, keys.hi), V(y | values.hi), y);
        y = select(lt(keys.hi, key), values.hi, y);
      }
      return select(comparable, y, x);
    }
  }
#endif
};

} // namespace
} // namespace clampgrad::device
