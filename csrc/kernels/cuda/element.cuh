// Elements of 16 bits on a GPU, which converts to float in an instruction: they are compared and
// divided as floats, and travel as their bits. Comes after rules/ops.h.

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
  static CLAMPGRAD_HOST_DEVICE bool comparable(Lane) { // false of NaN by themselves
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

template <typename T>
using ElementHere = std::conditional_t<sizeof(T) == 2, AsFloat<T>, ElementOf<T>>;

} // namespace
} // namespace clampgrad::device
