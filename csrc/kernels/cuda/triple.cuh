// Three Tensors on a GPU: whatever the rule, six comparisons of an element say which bits are
// recorded. They are looked up in a table of 64 bits per plane, which the rule fills on the host.
// So there is one kernel for all rules. Comes after rules/ops.h.

namespace clampgrad::device {
namespace {

struct TripleTable {
  uint64_t planes[3];
};

template <typename K>
CLAMPGRAD_HOST_DEVICE int comparisons(
    const Compared<K>& x, const Compared<K>& lo, const Compared<K>& hi) {
  return le(x, lo) | le(lo, x) << 1 | le(x, hi) << 2 | le(hi, x) << 3 | le(lo, hi) << 4 |
      le(hi, lo) << 5;
}

// Three numbers in every order, and NaN.
template <Gradient rule>
TripleTable table_of(int differentiated) {
  TripleTable table = {};
  const auto add = [&](float x, float lo, float hi) {
    using E = Real<float>;
    const auto kx = compared<E>(x), klo = compared<E>(lo), khi = compared<E>(hi);
    const auto y = compared<E>(clamped(x, lo, hi, kx, klo, khi));
    const auto bits = encode_triple<rule>(kx, klo, khi, y, differentiated);
    const int at = comparisons(kx, klo, khi);
    table.planes[0] |= uint64_t{bits.x} << at;
    table.planes[1] |= uint64_t{bits.lo} << at;
    table.planes[2] |= uint64_t{bits.hi} << at;
  };
  const float values[] = {0, 1, 2, NAN};
  for (const float x : values) {
    for (const float lo : values) {
      for (const float hi : values) {
        add(x, lo, hi);
      }
    }
  }
  return table;
}

inline TripleTable table_of(const TripleEncode& call) {
  return with_constant<kGradients>(triple_rule(call.rule), [&](auto rule) {
    return table_of<triple_rule(decltype(rule)::value)>(call.differentiated);
  });
}

template <typename E>
struct LookUpTriple : Op<TripleEncode, E, 3> {
  TripleTable table;

  template <typename V>
  CLAMPGRAD_HOST_DEVICE void operator()(const V (&in)[3], uint32_t (&bits)[3], V (&out)[1]) const {
    const auto x = compared<E>(in[0]), lo = compared<E>(in[1]), hi = compared<E>(in[2]);
    out[0] = clamped(in[0], in[1], in[2], x, lo, hi);
    const int at = comparisons(x, lo, hi);
    for (int p = 0; p < 3; ++p) { // as words: of a bool, the compiler makes a test of 64 bits
      bits[p] = static_cast<uint32_t>(table.planes[p] >> at) & 1;
    }
  }
};

} // namespace
} // namespace clampgrad::device
