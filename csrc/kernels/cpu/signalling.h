// The elements of the CPU. There torch.fmax and fmin are the C library's: for a NaN and a number
// the result is the number, or NaN if the NaN signals. torch converts float16 first, after which no
// NaN signals. Comes after the rules.

namespace clampgrad::CLAMPGRAD_INSTANCE {
namespace {

template <typename T>
struct ElementHere : ElementOf<T> {
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

} // namespace
} // namespace clampgrad::CLAMPGRAD_INSTANCE
