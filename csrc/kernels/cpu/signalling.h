// Signalling NaNs. torch.fmax and fmin are the C library's on the CPU: a NaN loses to a number, but
// of one that signals the result is NaN. float16 is converted first, after which none signals.

namespace clampgrad::CLAMPGRAD_ISA {
namespace {

// The bits of float, double and bfloat16, and how many of them lie below the one that says that a
// NaN does not signal.
template <size_t bytes>
struct NanBits;
template <>
struct NanBits<2> {
  using Type = uint16_t;
  static constexpr int kQuiet = 6;
};
template <>
struct NanBits<4> {
  using Type = uint32_t;
  static constexpr int kQuiet = 22;
};
template <>
struct NanBits<8> {
  using Type = uint64_t;
  static constexpr int kQuiet = 51;
};

// `result`, or NaN where one of the two signals.
template <typename E, typename V>
CLAMPGRAD_HOST_DEVICE V signalled(const V (&in)[2], V result) {
  if constexpr (!std::is_base_of_v<Short<10>, E>) {
    using Of = NanBits<sizeof(typename E::Lane)>;
    using Bits = typename Of::Type;
    constexpr Bits quiet = Bits{1} << Of::kQuiet, magnitude = Bits(~Bits{0}) >> 1;
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

} // namespace
} // namespace clampgrad::CLAMPGRAD_ISA
