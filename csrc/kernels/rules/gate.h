// What a convention does to a gradient where the bounds are numbers, element by element:
//   encode   (x, lo, hi) -> code     in the forward
//   decode   (g, code)   -> gradient in the backward
// The rules are those of docs/conventions.md. Comes after rules/element.h, which says how.

namespace clampgrad::CLAMPGRAD_ISA {
namespace {

// The bounds of one call, as values or as keys. An absent one blocks nothing, and nothing ties
// with it.
template <typename V>
struct Bounds {
  V lo, hi;
};

// The bits of a code, as in kernels/gate.h. Of one plane, the first.
template <typename M>
struct Code {
  M first, second;
};

// What to return beyond each bound: hi wins where lo > hi, and then every number lies beyond one.
template <bool has_lo, bool has_hi, typename V, typename K>
CLAMPGRAD_HOST_DEVICE Bounds<V> results(const Bounds<V>& bounds, const Bounds<K>& keys) {
  const Mask<K> crossed = keys.lo > keys.hi;
  return {has_lo && has_hi ? V(crossed ? bounds.hi : bounds.lo) : bounds.lo, bounds.hi};
}

// torch.clamp, given results(bounds): NaN passes through. Keys decide, values are returned.
template <bool has_lo, bool has_hi, typename V, typename K>
CLAMPGRAD_HOST_DEVICE V
clamp_value(V value, K key, Mask<K> comparable, const Bounds<V>& values, const Bounds<K>& keys) {
  V y = value;
  if constexpr (has_lo) {
    y = key < keys.lo ? values.lo : y;
  }
  if constexpr (has_hi) {
    y = key > keys.hi ? values.hi : y;
  }
  return comparable ? y : value;
}

template <Gate gate, bool has_lo, bool has_hi, typename K>
CLAMPGRAD_HOST_DEVICE Code<Mask<K>> encode(K x, Mask<K> comparable, const Bounds<K>& b) {
  using M = Mask<K>;
  if constexpr (gate == Gate::strict || gate == Gate::inclusive || gate == Gate::half) {
    // Of two bounds, one shuts NaN out, whose key lies beyond all numbers or compares as false.
    const M some = has_lo && has_hi ? everywhere<M>() : comparable;
    M over = some, under = some, at_lo = M(), at_hi = M();
    if constexpr (has_lo) {
      over = some & (x > b.lo);
      at_lo = some & (x == b.lo);
    }
    if constexpr (has_hi) {
      under = some & (x < b.hi);
      at_hi = some & (x == b.hi);
    }
    if constexpr (gate == Gate::strict) {
      return {M(over & under), M()};
    } else if constexpr (gate == Gate::inclusive) {
      return {M((over | at_lo) & (under | at_hi)), M()};
    } else {
      const M quarter = at_lo & at_hi;
      return {M((over & under) | quarter), M((at_lo & under) | (over & at_hi) | quarter)};
    }
  } else {
    const auto beyond = results<has_lo, has_hi>(b, b);
    const K y = clamp_value<has_lo, has_hi>(x, x, comparable, beyond, b);
    return {M(comparable & (x >= y)), M(comparable & ((x < y) | (x > y)))};
  }
}

// Selects, never multiplies by 0: a shut element gets an exact 0 even where g is inf or NaN.
template <Gate gate, typename E, typename V>
CLAMPGRAD_HOST_DEVICE V decode(V g, const Code<Mask<V>>& code) {
  using M = Mask<V>;
  const V zero = V();
  if constexpr (planes(gate) == 1) {
    return code.first ? g : zero;
  } else if constexpr (gate == Gate::half) {
    const V part = code.first ? E::quartered(g) : E::halved(g);
    const V whole = code.first ? g : zero;
    return code.second ? part : whole;
  } else if constexpr (gate == Gate::with_grad || gate == Gate::with_grad_maximize) {
    // Descent moves x by -g: up where g < 0. A step of length 0 leaves x where it is.
    const auto key = E::key(g);
    const auto none = KeyOf<E, V>();
    const M number = E::number(g), falls = number & (key >= none), rises = number & (key <= none);
    const M back =
        gate == Gate::with_grad ? (code.first ? falls : rises) : (code.first ? rises : falls);
    const M open = code.second ? back : code.first;
    return open ? g : zero;
  } else {
    const V one = zero + E::one, minus_one = E::negated(one);
    const V up = gate == Gate::restoring ? minus_one : one; // the gradient of a step up
    const V down = gate == Gate::restoring ? one : minus_one;
    const V push = code.first ? down : up;
    const V inside = code.first ? g : zero;
    return code.second ? push : inside;
  }
}

} // namespace
} // namespace clampgrad::CLAMPGRAD_ISA
