// The loops of kernels.cpp, compiled once per instruction set (every_loop.h).

namespace clampgrad::CLAMPGRAD_ISA {
namespace {

template <bool greater_wins, bool nan_loses, typename E>
struct EncodePairWord {
  static constexpr int kPlanesWritten = 2;
  PairCodes codes;

  CLAMPGRAD_HOST_DEVICE void operator()(
      const Encoded<2, typename E::Lane>& s, int64_t plane) const {
    WordOf<Mask<Vector<typename E::Lane>>> to_self, to_other;
    for (int i = 0; i < kWord; i += lanes<typename E::Lane>) {
      const auto self = load(s.in[0] + i), other = load(s.in[1] + i);
      const auto pair =
          pair_shares<greater_wins, nan_loses>(compared<E>(self), compared<E>(other), codes);
      store(s.out[0] + i, select(pair.takes_self, self, other));
      to_self.set(i, pair.shares.self);
      to_other.set(i, pair.shares.other);
    }
    s.bits[0] = to_self.bits();
    s.bits[plane] = to_other.bits();
  }
};

template <TripleRule rule, typename E>
struct EncodeTripleWord {
  static constexpr int kPlanesWritten = 3;
  int differentiated;

  CLAMPGRAD_HOST_DEVICE void operator()(
      const Encoded<3, typename E::Lane>& s, int64_t plane) const {
    WordOf<Mask<Vector<typename E::Lane>>> to_x, to_lo, to_hi;
    for (int i = 0; i < kWord; i += lanes<typename E::Lane>) {
      const auto vx = load(s.in[0] + i), vlo = load(s.in[1] + i), vhi = load(s.in[2] + i);
      const auto x = compared<E>(vx), lo = compared<E>(vlo), hi = compared<E>(vhi);
      const auto y = clamped(vx, vlo, vhi, x, lo, hi);
      store(s.out[0] + i, y);
      const auto triple = encode_triple<rule>(x, lo, hi, compared<E>(y), differentiated);
      to_x.set(i, triple.x);
      to_lo.set(i, triple.lo);
      to_hi.set(i, triple.hi);
    }
    s.bits[0] = to_x.bits();
    s.bits[plane] = to_lo.bits();
    s.bits[2 * plane] = to_hi.bits();
  }
};

template <Sharing sharing, typename E>
struct DecodePairWord {
  static constexpr int kPlanesWritten = 0;
  bool clamps_from_below;

  CLAMPGRAD_HOST_DEVICE void operator()(
      const Decoded<2, typename E::Lane>& s, int64_t plane) const {
    using M = Mask<Vector<typename E::Lane>>;
    const uint64_t to_self = s.bits[0], to_other = s.bits[plane];
    for (int i = 0; i < kWord; i += lanes<typename E::Lane>) {
      const auto gradient = decode_pair<sharing, E>(
          load(s.in[0] + i),
          from_bits<M>(to_self >> i),
          from_bits<M>(to_other >> i),
          clamps_from_below);
      if (s.out[0]) {
        store(s.out[0] + i, gradient.self);
      }
      if (s.out[1]) {
        store(s.out[1] + i, gradient.other);
      }
    }
  }
};

template <Sharing sharing, typename E>
struct DecodeTripleWord {
  static constexpr int kPlanesWritten = 0;

  CLAMPGRAD_HOST_DEVICE void operator()(
      const Decoded<3, typename E::Lane>& s, int64_t plane) const {
    using M = Mask<Vector<typename E::Lane>>;
    const uint64_t to_x = s.bits[0], to_lo = s.bits[plane], to_hi = s.bits[2 * plane];
    for (int i = 0; i < kWord; i += lanes<typename E::Lane>) {
      const Triple<M> bits = {
          from_bits<M>(to_x >> i), from_bits<M>(to_lo >> i), from_bits<M>(to_hi >> i)};
      const auto gradient = decode_triple<sharing, E>(load(s.in[0] + i), bits);
      if (s.out[0]) {
        store(s.out[0] + i, gradient.x);
      }
      if (s.out[1]) {
        store(s.out[1] + i, gradient.lo);
      }
      if (s.out[2]) {
        store(s.out[2] + i, gradient.hi);
      }
    }
  }
};

template <bool greater_wins, bool nan_loses, typename E>
void encode_pairs(
    const Encoded<2, typename E::Lane>& s, int64_t begin, int64_t end, PairCodes codes) {
  foreach_word(s, begin, end, EncodePairWord<greater_wins, nan_loses, E>{codes});
}
template <TripleRule rule, typename E>
void encode_triples(
    const Encoded<3, typename E::Lane>& s, int64_t begin, int64_t end, int differentiated) {
  foreach_word(s, begin, end, EncodeTripleWord<rule, E>{differentiated});
}
template <Sharing sharing, typename E>
void decode_pairs(
    const Decoded<2, typename E::Lane>& s, int64_t begin, int64_t end, bool clamps_from_below) {
  foreach_word(s, begin, end, DecodePairWord<sharing, E>{clamps_from_below});
}
template <Sharing sharing, typename E>
void decode_triples(const Decoded<3, typename E::Lane>& s, int64_t begin, int64_t end) {
  foreach_word(s, begin, end, DecodeTripleWord<sharing, E>());
}

template <typename T>
void add_share_loops(Loops<T>& l) {
  using E = ElementOf<T>;
  l.encode_pair[0][0] = encode_pairs<false, false, E>;
  l.encode_pair[0][1] = encode_pairs<false, true, E>;
  l.encode_pair[1][0] = encode_pairs<true, false, E>;
  l.encode_pair[1][1] = encode_pairs<true, true, E>;
  foreach_constant<TripleRule, kTripleRules>([&](auto constant) {
    constexpr TripleRule rule = decltype(constant)::value;
    l.encode_triple[int(rule)] = encode_triples<rule, E>;
  });
  foreach_constant<Sharing, kSharings>([&](auto constant) {
    constexpr Sharing sharing = decltype(constant)::value;
    l.decode_pair[int(sharing)] = decode_pairs<sharing, E>;
    l.decode_triple[int(sharing)] = decode_triples<sharing, E>;
  });
}

} // namespace
} // namespace clampgrad::CLAMPGRAD_ISA
