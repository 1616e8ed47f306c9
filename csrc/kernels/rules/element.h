// What a rule may use. A rule is a template over V, of which there are three: one value (CUDA,
// MSVC), a vector of values (the CPU; the vector extension of GCC and Clang), and a whole Tensor
// (the composed path; autograd/composed.h). Rules compare with eq(), lt() and le(), which give a
// Mask: a bool, a vector whose lanes are 0 or -1, a k register of AVX-512, or a Tensor of bools.
// They combine masks with &, | and ^ and choose values with select(), which mean the same for all,
// but give an int for a bool or a narrow k register: M(a & b) is a mask again.
//
// Free of ATen. Compiled once per kind of V, in the namespace CLAMPGRAD_ISA: no include guard.

namespace clampgrad::CLAMPGRAD_ISA {
namespace {

template <typename V>
CLAMPGRAD_HOST_DEVICE auto eq(V a, V b) {
  return a == b;
}
template <typename V>
CLAMPGRAD_HOST_DEVICE auto lt(V a, V b) {
  return a < b;
}
template <typename V>
CLAMPGRAD_HOST_DEVICE auto le(V a, V b) {
  return a <= b;
}

template <typename V>
using Mask = decltype(eq(V(), V()));

template <typename M>
CLAMPGRAD_HOST_DEVICE M everywhere() {
  if constexpr (std::is_constructible_v<M, int>) {
    return M(-1); // true, or all bits
  } else {
    return M() == M();
  }
}
template <typename M>
CLAMPGRAD_HOST_DEVICE M where(bool condition) {
  return condition ? everywhere<M>() : M();
}
template <typename M>
CLAMPGRAD_HOST_DEVICE M negate(M a) {
  return a ^ everywhere<M>();
}
template <typename M, typename V>
CLAMPGRAD_HOST_DEVICE V select(M mask, V a, V b) {
  static_assert(std::is_same_v<M, bool> || !std::is_integral_v<M>, "select(M(a & b), ...)");
  return mask ? a : b;
}

// Of two numbers; `a` where one is NaN, unless V is a Tensor. Compilers turn these into
// instructions for max and min where the machine has them.
template <typename V>
CLAMPGRAD_HOST_DEVICE V larger(V a, V b) {
  return a < b ? b : a;
}
template <typename V>
CLAMPGRAD_HOST_DEVICE V lesser(V a, V b) {
  return b < a ? b : a;
}

// What the two elements below have in common.
template <typename E>
struct Element {
  // 1 where `plus`, -1 where `minus`, 0 elsewhere.
  template <typename V, typename M>
  static CLAMPGRAD_HOST_DEVICE V sign(M plus, M minus) {
    const V zero = V(), one = zero + E::one;
    return select(plus, one, select(minus, E::negated(one), zero));
  }
};

// float and double
template <typename T>
struct Real : Element<Real<T>> {
  using Lane = T;
  static constexpr T one = 1;

  // What is compared in place of the value.
  template <typename V>
  static CLAMPGRAD_HOST_DEVICE V key(V x) {
    return x;
  }
  // Not NaN.
  template <typename V>
  static CLAMPGRAD_HOST_DEVICE Mask<V> number(V x) {
    return eq(x, x);
  }
  // Where <, <= and == of keys can be trusted: they are false of NaN by themselves.
  template <typename V>
  static CLAMPGRAD_HOST_DEVICE Mask<V> comparable(V) {
    return everywhere<Mask<V>>();
  }

  template <typename V>
  static CLAMPGRAD_HOST_DEVICE V negated(V x) {
    return -x;
  }
  template <typename V>
  static CLAMPGRAD_HOST_DEVICE V halved(V x) {
    return x * T(0.5);
  }
  template <typename V>
  static CLAMPGRAD_HOST_DEVICE V quartered(V x) {
    return x * T(0.25);
  }
  template <typename V>
  static CLAMPGRAD_HOST_DEVICE V third(V x) {
    return x / T(3);
  }
};

// float16 and bfloat16 as their bits: integers compare without a conversion, and what little
// arithmetic there is comes out as it does through float32, rounded to nearest, ties to even.
template <int mantissa_bits>
struct Short : Element<Short<mantissa_bits>> {
  using Lane = uint16_t;
  static constexpr uint16_t implicit_bit = 1 << mantissa_bits;
  static constexpr uint16_t infinity = 0x8000 - implicit_bit;
  static constexpr uint16_t one = infinity / 2 & infinity;

  template <typename V> // for a vector, one of signed lanes: what its own == gives
  using Key = std::conditional_t<std::is_same_v<V, Lane>, int16_t, decltype(V() == V())>;

  template <typename V>
  static CLAMPGRAD_HOST_DEVICE V magnitude(V x) {
    return V(x & Lane(0x7fff));
  }

  // Orders as the numbers do, with -0 equal to +0; beyond +-infinity lie the NaNs.
  template <typename V>
  static CLAMPGRAD_HOST_DEVICE Key<V> key(V x) {
    const auto m = Key<V>(magnitude(x));
#if CLAMPGRAD_VECTOR_BYTES == 32
    if constexpr (sizeof(V) == 32) {
      return reinterpret_cast<Key<V>>(
          _mm256_sign_epi16(reinterpret_cast<__m256i>(m), reinterpret_cast<__m256i>(x)));
    }
#endif
    return select(lt(Key<V>(x), Key<V>()), Key<V>(-m), m);
  }
  template <typename V>
  static CLAMPGRAD_HOST_DEVICE Mask<V> number(V x) {
    return below(magnitude(x), infinity + 1); // one instruction, where <= is two
  }
  template <typename V>
  static CLAMPGRAD_HOST_DEVICE Mask<V> comparable(V x) {
    return number(x);
  }

  template <typename V>
  static CLAMPGRAD_HOST_DEVICE V negated(V x) {
    return V(x ^ Lane(0x8000));
  }
  template <typename V>
  static CLAMPGRAD_HOST_DEVICE V halved(V x) {
    const V m = magnitude(x);
    return scaled(x, V(m - implicit_bit), V((m + (m >> 1 & Lane(1))) >> 1), 2);
  }
  template <typename V>
  static CLAMPGRAD_HOST_DEVICE V quartered(V x) {
    const V m = magnitude(x), u = units(m);
    const V rounded = V((u + Lane(1) + (u >> 2 & Lane(1))) >> 2);
    return scaled(x, V(m - Lane(2 * implicit_bit)), rounded, 3);
  }
  template <typename V>
  static CLAMPGRAD_HOST_DEVICE V third(V x) {
    const V m = magnitude(x), s = significand(m);
    // 2s/3 where that is 1 or more, else 4s/3 with an exponent one lower. Never a tie to round.
    const auto lower = below(s, implicit_bit + implicit_bit / 2);
    const V q = V(V(select(lower, V(s * Lane(4)), V(s * Lane(2))) + Lane(1)) / Lane(3));
    const V exponent = select(lower, V(V() + Lane(2 * implicit_bit)), V(V() + implicit_bit));
    const V base = V(V(m - s) - exponent);
    return scaled(x, V(base + q), V(V(units(m) + Lane(1)) / Lane(3)), 3);
  }

 private:
  template <typename V>
  static CLAMPGRAD_HOST_DEVICE Mask<V> below(V magnitude, int16_t limit) {
    return lt(Key<V>(magnitude), Key<V>(Key<V>() + limit));
  }
  template <typename V>
  static CLAMPGRAD_HOST_DEVICE V significand(V m) {
    return V((m & Lane(implicit_bit - 1)) | implicit_bit);
  }
  // In units of the smallest subnormal, for exponents up to 2.
  template <typename V>
  static CLAMPGRAD_HOST_DEVICE V units(V m) {
    return select(below(m, 2 * implicit_bit), m, V(significand(m) << 1));
  }
  // The sign of x and, by its exponent, `normal` or `subnormal`; x where not finite.
  template <typename V>
  static CLAMPGRAD_HOST_DEVICE V scaled(V x, V normal, V subnormal, int exponent) {
    const V m = magnitude(x);
    const V finite = select(below(m, exponent * implicit_bit), subnormal, normal);
    return select(below(m, infinity), V(finite | (x & Lane(0x8000))), x);
  }
};

template <typename E, typename V = typename E::Lane>
using KeyOf = decltype(E::key(V()));

// ---- What rules are asked about, and how they answer: numbers for bounds ------------------------

// The bounds of one call, as values or as keys. An absent one blocks nothing, and nothing ties
// with it.
template <typename V>
struct Bounds {
  V lo, hi;
};

template <typename K>
CLAMPGRAD_HOST_DEVICE Mask<K> between(K x, const Bounds<K>& b) {
#if defined(CLAMPGRAD_VECTOR_BYTES)
  if constexpr (sizeof(lane_of(x)) == 2) { // wraps around: one comparison, from the first inside on
    const K first = b.lo + int16_t(1), end = larger(b.hi, first);
    const auto lowest = Vector<uint16_t>(first) ^ uint16_t(0x8000);
    return lt(K(Vector<uint16_t>(x) - lowest), K(Vector<uint16_t>(end) - lowest));
  }
#endif
  return lt(b.lo, x) & lt(x, b.hi);
}

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

// ---- The same: Tensors --------------------------------------------------------------------------

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
  return a.comparable & b.comparable & lt(a.key, b.key);
}
template <typename K>
CLAMPGRAD_HOST_DEVICE Mask<K> le(const Compared<K>& a, const Compared<K>& b) {
  return a.comparable & b.comparable & le(a.key, b.key);
}
template <typename K>
CLAMPGRAD_HOST_DEVICE Mask<K> eq(const Compared<K>& a, const Compared<K>& b) {
  return a.comparable & b.comparable & eq(a.key, b.key);
}

// Who gets a share, and where the two halve it.
template <typename M>
struct PairShares {
  M self, other;
  M halved;
};

// A mask or a gradient per argument.
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
