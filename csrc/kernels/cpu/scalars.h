// vectors.h where the compiler has no vector extension: a vector of one lane, whose mask is a bool.

namespace clampgrad::CLAMPGRAD_INSTANCE {
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

} // namespace
} // namespace clampgrad::CLAMPGRAD_INSTANCE
