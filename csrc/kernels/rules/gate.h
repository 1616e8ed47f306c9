// What a convention does to a gradient where the bounds are numbers, per element. The rules are
// those of docs/conventions.md. A rule says what holds at x (a Weight or a Position) and what that
// makes of the gradient. The composed path does one after the other. The kernels keep what holds as
// two bits in between:
//   encode   (x, lo, hi) -> code     in the forward
//   decode   (g, code)   -> gradient in the backward
// Comes after rules/element.h.

namespace clampgrad::CLAMPGRAD_ISA {
namespace {

// The bounds of one call, as values or as keys. An absent one blocks nothing, and nothing ties
// with it.
template <typename V>
struct Bounds {
  V lo, hi;
};

// What to return beyond each bound: hi wins where lo > hi, and then every number lies beyond one.
template <bool has_lo, bool has_hi, typename V, typename K>
CLAMPGRAD_HOST_DEVICE Bounds<V> results(const Bounds<V>& bounds, const Bounds<K>& keys) {
  const Mask<K> crossed = keys.lo > keys.hi;
  return {has_lo && has_hi ? select(crossed, bounds.hi, bounds.lo) : bounds.lo, bounds.hi};
}

// torch.clamp, given results(bounds): NaN passes through. Keys decide, values are returned.
template <bool has_lo, bool has_hi, typename V, typename K>
CLAMPGRAD_HOST_DEVICE V
clamp_value(V value, K key, Mask<K> comparable, const Bounds<V>& values, const Bounds<K>& keys) {
  V y = value;
  if constexpr (has_lo) {
    y = select(Mask<K>(key < keys.lo), values.lo, y);
  }
  if constexpr (has_hi) {
    y = select(Mask<K>(key > keys.hi), values.hi, y);
  }
  return select(comparable, y, value);
}

// ---- What holds at x ----------------------------------------------------------------------------

// Which part of g passes: all of it where open, but half of it at a tie, or a quarter at a tie with
// both bounds. Where not open, a `tie` means nothing.
template <typename M>
struct Weight {
  M open, tie, quarter;
};

template <Gate gate, bool has_lo, bool has_hi, typename K>
CLAMPGRAD_HOST_DEVICE Weight<Mask<K>> weight(K x, Mask<K> comparable, const Bounds<K>& b) {
  using M = Mask<K>;
  // Of two bounds, one shuts NaN out, whose key lies beyond all numbers or compares as false.
  M open = has_lo && has_hi ? everywhere<M>() : comparable, at_lo = M(), at_hi = M();
  if constexpr (has_lo) {
    open = open & (gate == Gate::strict ? M(x > b.lo) : M(x >= b.lo));
    at_lo = x == b.lo;
  }
  if constexpr (has_hi) {
    open = open & (gate == Gate::strict ? M(x < b.hi) : M(x <= b.hi));
    at_hi = x == b.hi;
  }
  if constexpr (gate == Gate::half) {
    return {open, M(at_lo | at_hi), M(at_lo & at_hi)};
  } else {
    return {open, M(), M()};
  }
}

// Where x lies, seen from the result y; nowhere at NaN.
template <typename M>
struct Position {
  M inside, below, above;
};

template <typename K>
CLAMPGRAD_HOST_DEVICE Position<Mask<K>> position(K x, Mask<K> comparable, K y) {
  using M = Mask<K>;
  return {M(comparable & (x == y)), M(comparable & (x < y)), M(comparable & (x > y))};
}

// ---- What that makes of the gradient ------------------------------------------------------------
// Both select, and never multiply by 0: a shut element gets an exact 0 even where g is inf or NaN.

template <Gate gate, typename E, typename V>
CLAMPGRAD_HOST_DEVICE V weighed(V g, const Weight<Mask<V>>& at) {
  V share = g;
  if constexpr (gate == Gate::half) {
    share = select(at.tie, select(at.quarter, E::quartered(g), E::halved(g)), g);
  }
  return select(at.open, share, V());
}

// Where a pseudo-gradient lets g pass. Descent moves x by -g: up where g < 0. A step of length 0
// leaves x where it is.
template <Gate gate, typename E, typename V>
CLAMPGRAD_HOST_DEVICE Mask<V> passes(V g, const Position<Mask<V>>& at) {
  if constexpr (gate == Gate::with_grad || gate == Gate::with_grad_maximize) {
    const auto key = E::key(g);
    const auto none = KeyOf<E, V>();
    const Mask<V> falls = key >= none, rises = key <= none;
    const Mask<V> back = gate == Gate::with_grad ? (at.above & falls) | (at.below & rises)
                                                 : (at.above & rises) | (at.below & falls);
    return at.inside | (E::comparable(g) & back);
  } else {
    return at.inside;
  }
}

template <Gate gate, typename E, typename V>
CLAMPGRAD_HOST_DEVICE V pushed(V g, const Position<Mask<V>>& at) {
  const V zero = V();
  const Mask<V> open = passes<gate, E>(g, at);
  if constexpr (gate == Gate::restoring) {
    return select(open, g, E::template sign<V>(at.above, at.below));
  } else if constexpr (gate == Gate::restoring_maximize) {
    return select(open, g, E::template sign<V>(at.below, at.above));
  } else {
    return select(open, g, zero);
  }
}

// ---- As bits ------------------------------------------------------------------------------------

// What the bits mean is said in base/gate.h. Of one plane, the first.
template <typename M>
struct Code {
  M first, second;
};

template <Gate gate, bool has_lo, bool has_hi, typename K>
CLAMPGRAD_HOST_DEVICE Code<Mask<K>> encode(K x, Mask<K> comparable, const Bounds<K>& b) {
  using M = Mask<K>;
  if constexpr (is_linear(gate)) {
    const auto at = weight<gate, has_lo, has_hi>(x, comparable, b);
    const M shared = at.open & at.tie;
    return {M((at.open ^ shared) | at.quarter), shared};
  } else {
    const auto beyond = results<has_lo, has_hi>(b, b);
    const auto at =
        position(x, comparable, clamp_value<has_lo, has_hi>(x, x, comparable, beyond, b));
    return {M(at.inside | at.above), M(at.below | at.above)};
  }
}

template <Gate gate, typename M>
CLAMPGRAD_HOST_DEVICE Weight<M> weight_in(const Code<M>& code) {
  if constexpr (planes(gate) == 1) {
    return {code.first, M(), M()};
  } else {
    return {M(code.first | code.second), code.second, code.first};
  }
}

template <typename M>
CLAMPGRAD_HOST_DEVICE Position<M> position_in(const Code<M>& code) {
  const M above = code.first & code.second;
  return {M(code.first ^ above), M(code.second ^ above), above};
}

template <Gate gate, typename E, typename V>
CLAMPGRAD_HOST_DEVICE V decode(V g, const Code<Mask<V>>& code) {
  if constexpr (is_linear(gate)) {
    return weighed<gate, E>(g, weight_in<gate>(code));
  } else {
    return pushed<gate, E>(g, position_in(code));
  }
}

} // namespace
} // namespace clampgrad::CLAMPGRAD_ISA
