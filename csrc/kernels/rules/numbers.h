// What a convention does to a gradient where the bounds are numbers, per element. The rules are
// those of docs/conventions.md. A rule says what holds at x (a Weight or a Position) and what that
// makes of the gradient. The composed path does one after the other. The kernels keep what holds as
// two bits in between:
//   encode   (x, lo, hi) -> code     in the forward
//   decode   (g, code)   -> gradient in the backward (rules/ops.h)
// Comes after conventions.h, which has the rules.

namespace clampgrad::CLAMPGRAD_ISA {
namespace {

// torch.clamp: one bound after the other, so that hi wins where lo > hi; NaN passes through. Keys
// decide, values are returned.
template <bool has_lo, bool has_hi, typename V, typename K>
CLAMPGRAD_HOST_DEVICE V
clamp_value(V value, K key, Mask<K> comparable, const Bounds<V>& values, const Bounds<K>& keys) {
  if constexpr (std::is_same_v<V, K>) {
    const V raised = has_lo ? larger(value, keys.lo) : value;
    return has_hi ? lesser(raised, keys.hi) : raised;
  } else {
    const Mask<K> below = has_lo ? Mask<K>(comparable & lt(key, keys.lo)) : Mask<K>();
    const Mask<K> above = has_hi ? Mask<K>(comparable & lt(keys.hi, key)) : Mask<K>();
    return select(above, values.hi, select(below, values.lo, value));
  }
}

template <typename K>
CLAMPGRAD_HOST_DEVICE Position<Mask<K>> position(K x, Mask<K> comparable, K y) {
  using M = Mask<K>;
  return {M(comparable & eq(x, y)), M(comparable & lt(x, y)), M(comparable & lt(y, x))};
}

// What that makes of the gradient: selects, and never multiplies by 0. A shut element gets an exact
// 0 even where g is inf or NaN.
template <Gate gate, typename E, typename V>
CLAMPGRAD_HOST_DEVICE V weighed(V g, const Weight<Mask<V>>& at) {
  V share = g;
  if constexpr (planes(gate) == 2) {
    share = select(at.tie, select(at.quarter, E::quartered(g), E::halved(g)), g);
  }
  return select(at.open, share, V());
}

// ---- As bits ------------------------------------------------------------------------------------

// Of one plane, the first.
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
    const auto at = position(x, comparable, clamp_value<has_lo, has_hi>(x, x, comparable, b, b));
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

} // namespace
} // namespace clampgrad::CLAMPGRAD_ISA
