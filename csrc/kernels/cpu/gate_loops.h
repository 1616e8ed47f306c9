// The loops of kernels.cpp, compiled once per instruction set (every_loop.h).

namespace clampgrad::CLAMPGRAD_ISA {
namespace {

template <typename E>
using Values = Vector<typename E::Lane>;
template <typename E>
using Keys = KeyOf<E, Values<E>>;

template <typename E>
CLAMPGRAD_HOST_DEVICE Bounds<Values<E>> values_of(const Numbers<typename E::Lane>& numbers) {
  return {splat(numbers.lo), splat(numbers.hi)};
}
template <typename E>
CLAMPGRAD_HOST_DEVICE Bounds<Keys<E>> keys_of(const Bounds<Values<E>>& values) {
  return {E::key(values.lo), E::key(values.hi)};
}

template <Gate gate, bool has_lo, bool has_hi, typename E>
struct EncodeWord {
  static constexpr int kPlanesWritten = planes(gate);
  Bounds<Values<E>> values;
  Bounds<Keys<E>> keys;

  CLAMPGRAD_HOST_DEVICE void operator()(
      const Encoded<1, typename E::Lane>& s, int64_t plane) const {
    WordOf<Mask<Values<E>>> first, second;
    for (int i = 0; i < kWord; i += lanes<typename E::Lane>) {
      const auto x = load(s.in[0] + i);
      const auto key = E::key(x);
      const auto comparable = E::comparable(x);
      store(s.out[0] + i, clamp_value<has_lo, has_hi>(x, key, comparable, values, keys));
      const auto code = encode<gate, has_lo, has_hi>(key, comparable, keys);
      first.set(i, code.first);
      second.set(i, code.second);
    }
    s.bits[0] = first.bits();
    if constexpr (planes(gate) == 2) {
      s.bits[plane] = second.bits();
    }
  }
};

template <Gate gate, typename E>
struct DecodeWord {
  static constexpr int kPlanesWritten = 0;

  CLAMPGRAD_HOST_DEVICE void operator()(
      const Decoded<1, typename E::Lane>& s, int64_t plane) const {
    using M = Mask<Values<E>>;
    const uint64_t first = s.bits[0], second = planes(gate) == 2 ? s.bits[plane] : 0;
    for (int i = 0; i < kWord; i += lanes<typename E::Lane>) {
      const Code<M> code = {from_bits<M>(first >> i), from_bits<M>(second >> i)};
      store(s.out[0] + i, decode<gate, E>(load(s.in[0] + i), code));
    }
  }
};

template <Gate gate, bool has_lo, bool has_hi, typename E>
void encode_words(
    const Encoded<1, typename E::Lane>& s,
    int64_t begin,
    int64_t end,
    const Numbers<typename E::Lane>& numbers) {
  const auto bounds = values_of<E>(numbers);
  const auto keys = keys_of<E>(bounds);
  const auto values = results<has_lo, has_hi>(bounds, keys);
  foreach_word(s, begin, end, EncodeWord<gate, has_lo, has_hi, E>{values, keys});
}

template <Gate gate, typename E>
void decode_words(const Decoded<1, typename E::Lane>& s, int64_t begin, int64_t end) {
  foreach_word(s, begin, end, DecodeWord<gate, E>());
}

template <typename T>
void add_gate_loops(Loops<T>& l) {
  using E = ElementOf<T>;
  foreach_constant<Gate, kGates>([&](auto constant) {
    constexpr Gate gate = decltype(constant)::value;
    l.encode_gate[int(gate)][0] = encode_words<gate, true, true, E>;
    l.encode_gate[int(gate)][1] = encode_words<gate, true, false, E>;
    l.encode_gate[int(gate)][2] = encode_words<gate, false, true, E>;
    l.decode_gate[int(gate)] = decode_words<gate, E>;
  });
}

} // namespace
} // namespace clampgrad::CLAMPGRAD_ISA
