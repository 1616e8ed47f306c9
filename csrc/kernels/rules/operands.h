// What rules are asked about, and how they answer. Comes after rules/element.h.

namespace clampgrad::CLAMPGRAD_ISA {
namespace {

// ---- Numbers for bounds -------------------------------------------------------------------------

// The bounds of one call, as values or as keys. An absent one blocks nothing, and nothing ties
// with it.
template <typename V>
struct Bounds {
  V lo, hi;
};

// Which part of g passes: all of it where open, but half of it at a tie, or a quarter at a tie with
// both bounds. Where not open, a `tie` means nothing.
template <typename M>
struct Weight {
  M open, tie, quarter;
};

// Where x lies, seen from the result y; nowhere at NaN.
template <typename M>
struct Position {
  M inside, below, above;
};

// ---- Tensors ------------------------------------------------------------------------------------

// Comparisons are false where one side is NaN, however keys compare.
template <typename K>
struct Compared {
  K key;
  Mask<K> comparable, number;
};
template <typename E, typename V>
CLAMPGRAD_HOST_DEVICE Compared<KeyOf<E, V>> compared(V x) {
  return {E::key(x), E::comparable(x), E::number(x)};
}
template <typename K>
CLAMPGRAD_HOST_DEVICE Mask<K> lt(const Compared<K>& a, const Compared<K>& b) {
  return a.comparable & b.comparable & (a.key < b.key);
}
template <typename K>
CLAMPGRAD_HOST_DEVICE Mask<K> le(const Compared<K>& a, const Compared<K>& b) {
  return a.comparable & b.comparable & (a.key <= b.key);
}
template <typename K>
CLAMPGRAD_HOST_DEVICE Mask<K> eq(const Compared<K>& a, const Compared<K>& b) {
  return a.comparable & b.comparable & (a.key == b.key);
}

// Who gets a share, and where the two halve it.
template <typename M>
struct PairShares {
  M self, other;
  M halved;
};

// A mask per argument.
template <typename M>
struct Triple {
  M x, lo, hi;
};

// Who gets a share: where nothing else is said, all of g; half of it where `two` share it and a
// third where `three` do. Where `nested`, x and lo halve what hi leaves. An argument that is
// `halved` gets half of g, whatever else is said of it.
template <typename M>
struct TripleShares {
  M x, lo, hi;
  M two, three, nested;
  Triple<M> halved = {};
};

} // namespace
} // namespace clampgrad::CLAMPGRAD_ISA
