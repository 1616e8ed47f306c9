// vectors.h where the compiler has no vector extension: a vector of one lane, whose mask is a bool.

namespace clampgrad::CLAMPGRAD_ISA {
namespace {

template <typename Lane>
using Vector = Lane;

template <typename Lane>
constexpr int lanes = 1;

template <typename Lane>
CLAMPGRAD_HOST_DEVICE Lane load(const Lane* from) {
  return *from;
}
template <typename Lane>
CLAMPGRAD_HOST_DEVICE void store(Lane* to, Lane value) {
  *to = value;
}
template <typename Lane>
CLAMPGRAD_HOST_DEVICE Lane splat(Lane value) {
  return value;
}

template <typename M>
struct WordOf {
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
  return (word >> element & 1) != 0;
}

} // namespace
} // namespace clampgrad::CLAMPGRAD_ISA
