// The vocabulary of rules.
//
// Note [One rule for a value, a vector and a Tensor]
// ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
// A rule is a template over V, of which there are three kinds: one value (CUDA; or two of 16 bits
// in a register), a vector of values (the CPU; the vector extension of GCC and Clang), and a whole
// Tensor (the composed path; ops/composed.h). Rules compare with eq(), lt() and le(), which give a
// Mask: a bool, a vector whose lanes are 0 or -1, a k register of AVX-512, or a Tensor of bools.
// They combine masks with operators of bits, and choose values with select().
//
// These operators promote bools and narrow k registers to int, so a rule writes M(a & b).
//
// The rules are compiled once per kind of V, in the namespace that CLAMPGRAD_INSTANCE names, so
// their headers have no include guard. They do not use ATen.

namespace clampgrad::CLAMPGRAD_INSTANCE {
namespace {

template <typename V>
CLAMPGRAD_RULE auto eq(V a, V b) {
  return a == b;
}
template <typename V>
CLAMPGRAD_RULE auto lt(V a, V b) {
  return a < b;
}
template <typename V>
CLAMPGRAD_RULE auto le(V a, V b) {
  return a <= b;
}

template <typename V>
using Mask = decltype(eq(V(), V()));

template <typename M>
CLAMPGRAD_RULE M all_true() {
  if constexpr (std::is_constructible_v<M, int>) {
    return M(-1); // true, or all bits
  } else {
    return M() == M();
  }
}
template <typename M>
CLAMPGRAD_RULE M mask_from_bool(bool condition) {
  return condition ? all_true<M>() : M();
}
template <typename M>
CLAMPGRAD_RULE M logical_not(M a) {
  return a ^ all_true<M>();
}
template <typename M, typename V>
CLAMPGRAD_RULE V select(M mask, V a, V b) {
  static_assert(std::is_same_v<M, bool> || !std::is_integral_v<M>, "select(M(a & b), ...)");
  return mask ? a : b;
}

// The larger of two numbers. Where one is NaN the result is `a`, except where V is a Tensor.
// Compilers turn these into max and min instructions where the machine has them.
template <typename V>
CLAMPGRAD_RULE V larger(V a, V b) {
  return a < b ? b : a;
}
template <typename V>
CLAMPGRAD_RULE V lesser(V a, V b) {
  return b < a ? b : a;
}

// The bounds of one call, as values or as keys. An absent bound never blocks x and never ties with
// it.
template <typename V>
struct Bounds {
  V lo, hi;
};

// torch.clamp: hi wins where lo > hi; NaN passes through. Keys are compared, values returned.
template <bool has_lo, bool has_hi, typename V, typename K>
CLAMPGRAD_RULE V
clamp_value(V value, K key, Mask<K> comparable, const Bounds<V>& values, const Bounds<K>& keys) {
  if constexpr (std::is_same_v<V, K>) {
    const V raised = has_lo ? larger(value, keys.lo) : value;
    return has_hi ? lesser(raised, keys.hi) : raised;
  } else {
    // Bits (AVX-512, CUDA) are and-ed. For lanes, one more select costs less than an & per bound.
    using M = Mask<K>;
    constexpr bool selects = std::is_same_v<M, K>;
    const M counts = selects ? all_true<M>() : comparable;
    const M below = has_lo ? M(counts & lt(key, keys.lo)) : M();
    const M above = has_hi ? M(counts & lt(keys.hi, key)) : M();
    const V clamped = select(above, values.hi, select(below, values.lo, value));
    return selects ? select(comparable, clamped, value) : clamped;
  }
}

// The base of all elements.
template <typename E>
struct Element {
  // The values of torch.clamp, and of torch.fmax and fmin: the rule has chosen `result` from the
  // two `in`. A device where torch returns something else overrides them.
  template <bool has_lo, bool has_hi, typename V, typename K>
  static CLAMPGRAD_RULE V
  clamp(V value, K key, Mask<K> comparable, const Bounds<V>& values, const Bounds<K>& keys) {
    return clamp_value<has_lo, has_hi>(value, key, comparable, values, keys);
  }
  template <typename V>
  static CLAMPGRAD_RULE V fmax(const V (&)[2], V result) {
    return result;
  }

  // Halving twice rounds like quartering once.
  template <typename V>
  static CLAMPGRAD_RULE V quarter_of(V x) {
    return E::half_of(E::half_of(x));
  }
  template <typename M, typename V>
  static CLAMPGRAD_RULE V pseudo_gradient(M passes, V g, V outside) {
    return select(passes, g, outside);
  }
  // 1 where `plus`, -1 where `minus`, 0 elsewhere.
  template <typename V, typename M>
  static CLAMPGRAD_RULE V sign(M plus, M minus) {
    const V zero = V(), one = zero + E::one, minus_one = zero + E::minus_one;
    return select(plus, one, select(minus, minus_one, zero));
  }
};

// float and double
template <typename T>
struct Real : Element<Real<T>> {
  using Lane = T;
  static constexpr T one = 1, minus_one = -1;

  // The key, which is compared in place of the value.
  template <typename V>
  static CLAMPGRAD_RULE V key(V x) {
    return x;
  }
  template <typename V>
  static CLAMPGRAD_RULE Mask<V> not_nan(V x) {
    return eq(x, x);
  }
  // Where keys compare as the numbers do: everywhere, because a NaN's key is a NaN.
  template <typename V>
  static CLAMPGRAD_RULE Mask<V> comparable(V) {
    return all_true<Mask<V>>();
  }

  template <typename V>
  static CLAMPGRAD_RULE V half_of(V x) {
    return x * T(0.5);
  }
  template <typename V>
  static CLAMPGRAD_RULE V third_of(V x) {
    return x / T(3);
  }
};

// float16 and bfloat16 as their bits, because integers are compared without a conversion.
// Arithmetic gives the results of float32, rounded to nearest, ties to even.
template <int mantissa_bits>
struct Bits16 : Element<Bits16<mantissa_bits>> {
  using Lane = uint16_t;
  static constexpr uint16_t implicit_bit = 1 << mantissa_bits;
  static constexpr uint16_t infinity = 0x8000 - implicit_bit;
  static constexpr uint16_t one = infinity / 2 & infinity, minus_one = one | 0x8000;

  template <typename V> // for a vector, one of signed lanes: what its own == gives
  using Key = std::conditional_t<std::is_same_v<V, Lane>, int16_t, decltype(V() == V())>;

  template <typename V>
  static CLAMPGRAD_RULE V magnitude(V x) {
    return V(x & Lane(0x7fff));
  }

  // Orders as the numbers do, with -0 equal to +0; beyond +-infinity lie the NaNs.
  template <typename V>
  static CLAMPGRAD_RULE Key<V> key(V x) {
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
  static CLAMPGRAD_RULE Mask<V> not_nan(V x) {
    return below(magnitude(x), infinity + 1);
  }
  template <typename V>
  static CLAMPGRAD_RULE Mask<V> comparable(V x) {
    return not_nan(x);
  }

  template <typename V>
  static CLAMPGRAD_RULE V half_of(V x) {
    const V m = magnitude(x);
    return with_sign_of(x, V(m - implicit_bit), V((m + (m >> 1 & Lane(1))) >> 1), 2);
  }
  template <typename V>
  static CLAMPGRAD_RULE V third_of(V x) {
    const V m = magnitude(x), s = significand(m);
    // 2s/3 where that is 1 or more, else 4s/3 with an exponent one lower. Never a tie to round.
    const auto lower = below(s, implicit_bit + implicit_bit / 2);
    const V q = V(V(select(lower, V(s * Lane(4)), V(s * Lane(2))) + Lane(1)) / Lane(3));
    const V exponent = select(lower, V(V() + Lane(2 * implicit_bit)), V(V() + implicit_bit));
    const V base = V(V(m - s) - exponent);
    return with_sign_of(x, V(base + q), V(V(units(m) + Lane(1)) / Lane(3)), 3);
  }

 private:
  template <typename V>
  static CLAMPGRAD_RULE Mask<V> below(V magnitude, int16_t limit) {
    return lt(Key<V>(magnitude), Key<V>(Key<V>() + limit));
  }
  template <typename V>
  static CLAMPGRAD_RULE V significand(V m) {
    return V((m & Lane(implicit_bit - 1)) | implicit_bit);
  }
  // In units of the smallest subnormal, for exponents up to 2.
  template <typename V>
  static CLAMPGRAD_RULE V units(V m) {
    return select(below(m, 2 * implicit_bit), m, V(significand(m) << 1));
  }
  // The sign of x and, by its exponent, `normal` or `subnormal`; x where not finite.
  template <typename V>
  static CLAMPGRAD_RULE V with_sign_of(V x, V normal, V subnormal, int exponent) {
    const V m = magnitude(x);
    const V finite = select(below(m, exponent * implicit_bit), subnormal, normal);
    return select(below(m, infinity), V(finite | (x & Lane(0x8000))), x);
  }
};

template <typename T>
struct ElementFor : Real<T> {};
template <>
struct ElementFor<c10::Half> : Bits16<10> {};
template <>
struct ElementFor<c10::BFloat16> : Bits16<7> {};

template <typename E, typename V = typename E::Lane>
using KeyOf = decltype(E::key(V()));

// An argument of a comparison: its key, where a comparison of the key counts, and where the
// argument is not NaN. A comparison of two of these is false where one is NaN.
template <typename K>
struct Comparand {
  K key;
  Mask<K> comparable, not_nan;
};
template <typename E, typename V>
CLAMPGRAD_RULE Comparand<KeyOf<E, V>> make_comparand(V x) {
  return {E::key(x), E::comparable(x), E::not_nan(x)};
}
template <typename K>
CLAMPGRAD_RULE Mask<K> lt(const Comparand<K>& a, const Comparand<K>& b) {
  return a.comparable & b.comparable & lt(a.key, b.key);
}
template <typename K>
CLAMPGRAD_RULE Mask<K> le(const Comparand<K>& a, const Comparand<K>& b) {
  return a.comparable & b.comparable & le(a.key, b.key);
}
template <typename K>
CLAMPGRAD_RULE Mask<K> eq(const Comparand<K>& a, const Comparand<K>& b) {
  return a.comparable & eq(a.key, b.key); // no number has the key of a NaN
}

} // namespace
} // namespace clampgrad::CLAMPGRAD_INSTANCE
