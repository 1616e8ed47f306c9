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

// torch.clamp: NaN passes through, and hi wins where lo > hi. Keys decide, values are returned.
template <bool has_lo, bool has_hi, typename V, typename K>
CLAMPGRAD_HOST_DEVICE V
clamp_value(V value, K key, Mask<K> number, const Bounds<V>& values, const Bounds<K>& keys) {
  if constexpr (has_lo) {
    const Mask<K> below = number & (key < keys.lo);
    value = below ? values.lo : value;
    key = below ? keys.lo : key;
  }
  if constexpr (has_hi) {
    const Mask<K> above = number & (keys.hi < key);
    value = above ? values.hi : value;
  }
  return value;
}

template <Gate gate, bool has_lo, bool has_hi, typename K>
CLAMPGRAD_HOST_DEVICE Code<Mask<K>> encode(K x, Mask<K> number, const Bounds<K>& b) {
  using M = Mask<K>;
  M over = number, under = number, at_lo = M(), at_hi = M();
  if constexpr (has_lo) {
    over = number & (x > b.lo);
    at_lo = number & (x == b.lo);
  }
  if constexpr (has_hi) {
    under = number & (x < b.hi);
    at_hi = number & (x == b.hi);
  }
  if constexpr (gate == Gate::strict) {
    return {M(over & under), M()};
  } else if constexpr (gate == Gate::inclusive) {
    return {M((over | at_lo) & (under | at_hi)), M()};
  } else if constexpr (gate == Gate::half) {
    const M quarter = at_lo & at_hi;
    return {M((over & under) | quarter), M((at_lo & under) | (over & at_hi) | quarter)};
  } else {
    const K y = clamp_value<has_lo, has_hi>(x, x, number, b, b);
    return {M(number & (x >= y)), M(number & (x != y))};
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
