// Three Tensors on a GPU: whatever the rule, six comparisons of an element say which bits are
// recorded. They are looked up in a table of 64 entries for each bit, which the rule fills on the
// host. So there is one kernel for all rules. Comes after the rules.

namespace clampgrad::device {
namespace {

struct TripleTable {
  uint64_t bits[3]; // of x, lo, hi
};

template <typename K>
CLAMPGRAD_HOST_DEVICE int comparisons(
    const Compared<K>& x, const Compared<K>& lo, const Compared<K>& hi) {
  return le(x, lo) | le(lo, x) << 1 | le(x, hi) << 2 | le(hi, x) << 3 | le(lo, hi) << 4 |
      le(hi, lo) << 5;
}

// Three numbers in every order, and NaN.
template <BitFormat format>
TripleTable table_of(int differentiated) {
  TripleTable table = {};
  using E = Real<float>;
  const float values[] = {0, 1, 2, NAN};
  for (int n = 0; n < 4 * 4 * 4; ++n) {
    const float x = values[n % 4], lo = values[n / 4 % 4], hi = values[n / 16];
    const auto kx = compared<E>(x), klo = compared<E>(lo), khi = compared<E>(hi);
    const auto y = compared<E>(clamped(x, lo, hi, kx, klo, khi));
    bool bits[3];
    triple_bits<format>(triple_masks<format>(kx, klo, khi, y, differentiated), bits);
    for (int b = 0; b < 3; ++b) {
      table.bits[b] |= uint64_t{bits[b]} << comparisons(kx, klo, khi);
    }
  }
  return table;
}

inline TripleTable table_of(const TensorForward<3>& call) {
  return with_constant<kGradients>(call.gradient, [&](auto gradient) {
    return table_of<format_of(decltype(gradient)::value, 3)>(call.differentiated);
  });
}

// Of a pair of numbers: two indices, as a pair.
template <typename T>
__device__ __forceinline__ uint32_t
comparisons(const Compared<Pair<T>>& x, const Compared<Pair<T>>& lo, const Compared<Pair<T>>& hi) {
  const uint32_t both = 0x10001;
  return (le(x, lo).bits & both) | (le(lo, x).bits & both << 1) | (le(x, hi).bits & both << 2) |
      (le(hi, x).bits & both << 3) | (le(lo, hi).bits & both << 4) | (le(hi, lo).bits & both << 5);
}

template <typename E>
struct LookUpTriple : Op<TensorForward<3>, E, 3> {
  TripleTable table;

  template <typename V>
  CLAMPGRAD_HOST_DEVICE void operator()(const V (&in)[3], uint32_t (&bits)[3], V (&out)[1]) const {
    const auto x = compared<E>(in[0]), lo = compared<E>(in[1]), hi = compared<E>(in[2]);
    out[0] = clamped(in[0], in[1], in[2], x, lo, hi);
    const int at = comparisons(x, lo, hi);
    for (int b = 0; b < 3; ++b) { // as words: of a bool, the compiler makes a test of 64 bits
      bits[b] = bit(b, at);
    }
  }
  template <typename T>
  __device__ __forceinline__ void operator()(
      const Pair<T> (&in)[3], PairBit (&bits)[3], Pair<T> (&out)[1]) const {
    const auto x = compared<E>(in[0]), lo = compared<E>(in[1]), hi = compared<E>(in[2]);
    out[0] = clamped(in[0], in[1], in[2], x, lo, hi);
    const auto at = comparisons(x, lo, hi);
    for (int b = 0; b < 3; ++b) {
      bits[b] = {bit(b, at & 0xffff) | bit(b, at >> 16) << 17};
    }
  }

 private:
  CLAMPGRAD_HOST_DEVICE uint32_t bit(int b, uint32_t at) const {
    return static_cast<uint32_t>(table.bits[b] >> at) & 1;
  }
};

} // namespace
} // namespace clampgrad::device
