// The elements of the CPU. There torch.fmax and fmin are the C library's: of a NaN and a number the
// result is the number, but where the NaN signals it is NaN. torch converts float16 first, after
// which none signals. Comes after the rules.

namespace clampgrad::CLAMPGRAD_INSTANCE {
namespace {

template <typename T>
struct ElementHere : ElementOf<T> {
  template <typename V>
  static CLAMPGRAD_HOST_DEVICE V fmax(const V (&in)[2], V result) {
    if constexpr (!std::is_same_v<T, c10::Half>) {
      using Bits = std::conditional_t<
          sizeof(T) == 2,
          uint16_t,
          std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;
      // The highest bit of the mantissa says that a NaN does not signal.
      constexpr Bits quiet = Bits{1} << (std::numeric_limits<T>::digits - 2);
      constexpr Bits magnitude = Bits(~Bits{0}) >> 1;
      constexpr Bits infinity = magnitude ^ Bits(2 * quiet - 1);
      constexpr size_t n = sizeof(V) / sizeof(Bits);
      Bits from[2][n], to[n];
      std::memcpy(from, in, sizeof(from));
      std::memcpy(to, &result, sizeof(to));
      for (int k = 1; k >= 0; --k) { // of two, the first
        for (size_t i = 0; i < n; ++i) {
          const Bits x = from[k][i];
          const bool signals = Bits(Bits(x & magnitude) - infinity - 1) < Bits(quiet - 1);
          to[i] = signals ? Bits(x | quiet) : to[i];
        }
      }
      std::memcpy(&result, to, sizeof(to));
    }
    return result;
  }
};

} // namespace
} // namespace clampgrad::CLAMPGRAD_INSTANCE
