// The gradient of a sum or a mean, which is broadcast: whatever the rule, the bits of an element
// say which part of g each argument gets. It is looked up in a table, which the rule fills on the
// host. So there is one kernel for all rules, because such gradients are rare. Comes after the
// rules.

namespace clampgrad::device {
namespace {

enum Part : uint32_t { nothing, all, half, quarter, third, one, minus_one, if_falling, if_rising };
constexpr uint32_t kParts = if_rising + 1;

template <typename E, typename V>
CLAMPGRAD_HOST_DEVICE V part_of(V g, uint32_t part) {
  const auto key = E::key(g);
  const decltype(key) none = {};
  V of_g = V();
  of_g = select(part == all, g, of_g);
  of_g = select(part == half, E::halved(g), of_g);
  of_g = select(part == quarter, E::quartered(g), of_g);
  of_g = select(part == third, E::third(g), of_g);
  of_g = select(part == one, E::template sign<V>(true, false), of_g);
  of_g = select(part == minus_one, E::template sign<V>(false, true), of_g);
  of_g = select(part == if_falling && le(none, key), g, of_g);
  return select(part == if_rising && le(key, none), g, of_g);
}

// A part of four bits for each number that the bits of an element make.
template <size_t n>
struct SharesTable {
  uint32_t parts[n];
};

// The part is known by what the rule makes of 12 and of -12.
template <size_t n>
SharesTable<n> table_of(const Backward<n>& call) {
  SharesTable<n> table = {};
  with_op<Real<float>>(call, [&](auto op) {
    constexpr int kBits = decltype(op)::kBits;
    for (uint32_t at = 0; at < 1u << kBits; ++at) {
      bool bits[kBits];
      for (int b = 0; b < kBits; ++b) {
        bits[b] = (at >> b & 1u) != 0;
      }
      float falling[n], rising[n];
      op({12.0f}, bits, falling);
      op({-12.0f}, bits, rising);
      for (size_t k = 0; k < n; ++k) {
        uint32_t part = 0;
        while (part_of<Real<float>>(12.0f, part) != falling[k] ||
               part_of<Real<float>>(-12.0f, part) != rising[k]) {
          ++part;
          TORCH_INTERNAL_ASSERT(part < kParts);
        }
        table.parts[k] |= part << 4 * at;
      }
    }
  });
  return table;
}

template <size_t n, int bits_per_element, typename E>
struct LookUpShares : Op<Backward<n>, E, bits_per_element> {
  SharesTable<n> table;

  template <typename V>
  CLAMPGRAD_HOST_DEVICE void operator()(
      const V (&in)[1], const bool (&bits)[bits_per_element], V (&out)[n]) const {
    uint32_t at = 0;
    for (int b = 0; b < bits_per_element; ++b) {
      at |= uint32_t{bits[b]} << b;
    }
    for (size_t k = 0; k < n; ++k) {
      out[k] = part_of<E>(in[0], table.parts[k] >> 4 * at & 15);
    }
  }
  template <typename T>
  CLAMPGRAD_HOST_DEVICE void operator()(
      const Pair<T> (&in)[1], const PairMask (&bits)[bits_per_element], Pair<T> (&out)[n]) const {
    uint16_t each[n][2];
    for (int i = 0; i < 2; ++i) {
      bool of_lane[bits_per_element];
      uint16_t shares[n];
      for (int b = 0; b < bits_per_element; ++b) {
        of_lane[b] = Packed<T>::bit(bits[b], i);
      }
      (*this)({Packed<T>::lane(in[0], i)}, of_lane, shares);
      for (size_t k = 0; k < n; ++k) {
        each[k][i] = shares[k];
      }
    }
    for (size_t k = 0; k < n; ++k) {
      out[k] = Packed<T>::joined(each[k]);
    }
  }
};

// Calls f with the Op for the bits of this call. All rules that record one bit read it alike.
template <typename E, size_t n, typename F>
void with_table(const Backward<n>& call, const F& f) {
  if constexpr (n == 1) {
    if (bits_per_element(call.convention.gradient, n) == 1) {
      f(BackwardOp<Rule<1, RuleName::min_norm, false>, E>{});
    } else {
      f(LookUpShares<1, 2, E>{{}, table_of(call)});
    }
  } else {
    f(LookUpShares<n, n, E>{{}, table_of(call)});
  }
}

} // namespace
} // namespace clampgrad::device
