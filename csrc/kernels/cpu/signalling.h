// Signalling NaNs, and the elements of the CPU. There torch.fmax and fmin are the C library's: of a
// NaN and a number the result is the number, but where the NaN signals it is NaN. torch converts
// float16 first, after which none signals. Comes after the rules.

namespace clampgrad::CLAMPGRAD_INSTANCE {
namespace {

// The bits of a number.
template <size_t bytes>
using BitsOf =
    std::conditional_t<bytes == 2, uint16_t, std::conditional_t<bytes == 4, uint32_t, uint64_t>>;

// `result`, or NaN where one of the two signals.
template <typename T, typename V>
CLAMPGRAD_HOST_DEVICE V signalled(const V (&in)[2], V result) {
  if constexpr (!std::is_same_v<T, c10::Half>) {
    using Bits = BitsOf<sizeof(T)>;
    // The highest bit of the mantissa says that a NaN does not signal.
    constexpr Bits quiet = Bits{1} << (std::numeric_limits<T>::digits - 2);
    constexpr Bits magnitude = Bits(~Bits{0}) >> 1;
    constexpr Bits infinity = magnitude ^ Bits(2 * quiet - 1);
    constexpr size_t n = sizeof(V) / sizeof(Bits);
    Bits x[n], y[n], to[n];
    std::memcpy(x, &in[0], sizeof(V));
    std::memcpy(y, &in[1], sizeof(V));
    std::memcpy(to, &result, sizeof(V));
    const auto signals = [](Bits b) {
      return Bits(Bits(b & magnitude) - infinity - 1) < Bits(quiet - 1);
    };
    for (size_t i = 0; i < n; ++i) {
      to[i] = signals(x[i]) ? Bits(x[i] | quiet) : signals(y[i]) ? Bits(y[i] | quiet) : to[i];
    }
    std::memcpy(&result, to, sizeof(V));
  }
  return result;
}

template <typename T>
struct ElementHere : ElementOf<T> {
  template <typename V>
  static CLAMPGRAD_HOST_DEVICE V fmax(const V (&in)[2], V result) {
    return signalled<T>(in, result);
  }
};

} // namespace
} // namespace clampgrad::CLAMPGRAD_INSTANCE
