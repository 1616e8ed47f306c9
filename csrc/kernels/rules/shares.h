// Who gets which share of a gradient where arguments are Tensors, element by element. The rules are
// those of docs/conventions.md; kernels/shares.h says what the bits mean. Comes after
// rules/gate.h.

namespace clampgrad::CLAMPGRAD_ISA {
namespace {

// Comparisons are false where one side is NaN, however keys compare.
template <typename K>
struct Compared {
  K key;
  Mask<K> number;
};
template <typename E, typename V>
CLAMPGRAD_HOST_DEVICE Compared<KeyOf<E, V>> compared(V x) {
  return {E::key(x), E::number(x)};
}
template <typename K>
CLAMPGRAD_HOST_DEVICE Mask<K> lt(const Compared<K>& a, const Compared<K>& b) {
  return a.number & b.number & (a.key < b.key);
}
template <typename K>
CLAMPGRAD_HOST_DEVICE Mask<K> le(const Compared<K>& a, const Compared<K>& b) {
  return a.number & b.number & (a.key <= b.key);
}
template <typename K>
CLAMPGRAD_HOST_DEVICE Mask<K> eq(const Compared<K>& a, const Compared<K>& b) {
  return a.number & b.number & (a.key == b.key);
}

// ---- Two arguments ------------------------------------------------------------------------------

// The bits of a code; and whether the value of the result is self's.
template <typename M>
struct Pair {
  M self, other;
  M takes_self;
};

// The bit of an argument in the cases that conventions disagree on.
template <typename M>
CLAMPGRAD_HOST_DEVICE M disputed(M tie, M nan, const PairCodes& codes, int argument) {
  return (tie & where<M>(codes.tie & argument)) | (nan & where<M>(codes.nan & argument));
}

// maximum where greater_wins, else minimum; fmax and fmin where a NaN loses.
template <bool greater_wins, bool nan_loses, typename K>
CLAMPGRAD_HOST_DEVICE Pair<Mask<K>> encode_pair(
    const Compared<K>& self, const Compared<K>& other, const PairCodes& codes) {
  using M = Mask<K>;
  M wins = greater_wins ? lt(other, self) : lt(self, other);
  M loses = greater_wins ? lt(self, other) : lt(other, self);
  const M tie = eq(self, other);
  M nan = negate<M>(self.number & other.number);
  if constexpr (nan_loses) {
    wins = wins | (self.number & negate<M>(other.number));
    loses = loses | (other.number & negate<M>(self.number));
    nan = negate<M>(self.number | other.number);
  }
  const M takes_self = nan_loses ? negate<M>(loses) : M(wins | tie | negate<M>(self.number));
  return {
      M(wins | disputed(tie, nan, codes, kSelf)),
      M(loses | disputed(tie, nan, codes, kOther)),
      takes_self};
}

// ---- Three arguments ----------------------------------------------------------------------------

// The bits of a code.
template <typename M>
struct Triple {
  M x, lo, hi;
};

// torch.clamp of three Tensors: a NaN among them is the result, and hi wins where lo > hi.
template <typename V, typename K>
CLAMPGRAD_HOST_DEVICE V
clamped(V x, V lo, V hi, const Compared<K>& kx, const Compared<K>& klo, const Compared<K>& khi) {
  using M = Mask<K>;
  const M raised = lt(kx, klo);
  const M lowered = raised ? lt(khi, klo) : lt(khi, kx);
  V y = raised ? lo : x;
  y = lowered ? hi : y;
  y = khi.number ? y : hi;
  y = klo.number ? y : lo;
  return kx.number ? y : x;
}

// `differentiated` has the bits of the arguments that are being differentiated.
template <Rule rule, typename K>
CLAMPGRAD_HOST_DEVICE Triple<Mask<K>> encode_triple(
    const Compared<K>& x, const Compared<K>& lo, const Compared<K>& hi, int differentiated) {
  using M = Mask<K>;
  if constexpr (rule == Rule::inclusive) {
    return {M(le(lo, x) & le(x, hi)), M(lt(x, lo) & lt(lo, hi)), M(lt(hi, x) | lt(hi, lo))};
  } else if constexpr (rule == Rule::joint) {
    const M ordered = lt(lo, hi), crossed = lt(hi, lo), apart = le(lo, hi);
    const M under = lt(x, lo), over = lt(hi, x);
    const M all = negate<M>(x.number) & crossed;
    return {
        M(negate<M>(under | over) | all),
        M((under & apart) | (eq(x, lo) & ordered) | all),
        M((over & apart) | crossed | (eq(x, hi) & ordered) | all)};
  } else if constexpr (rule == Rule::half) {
    const M number = x.number & lo.number & hi.number;
    const M raised = lt(x, lo);
    const M shut = raised ? lt(hi, lo) : lt(hi, x);
    const M tie = raised ? eq(lo, hi) : eq(x, hi);
    const M open = number & negate<M>(shut);
    return {M(open & negate<M>(raised)), M(open & le(x, lo)), M(number & (shut | tie))};
  } else {
    const M number = x.number & lo.number & hi.number;
    const M at_x = le(lo, x) & le(x, hi), at_lo = le(x, lo) & le(lo, hi);
    const M at_hi = number & (le(hi, x) | le(hi, lo));
    if constexpr (rule == Rule::min_norm) {
      const M alone = (at_x ^ at_lo ^ at_hi) & negate<M>(at_x & at_lo & at_hi);
      // A constant among several active inputs makes 0 a subgradient.
      const M constant = (at_x & where<M>(!(differentiated & kX))) |
          (at_lo & where<M>(!(differentiated & kLo))) | (at_hi & where<M>(!(differentiated & kHi)));
      const M open = alone | negate<M>(constant);
      return {M(at_x & open), M(at_lo & open), M(at_hi & open)};
    } else {
      const M shared = where<M>((differentiated & (kLo | kHi)) == (kLo | kHi));
      const M inside = number & (at_x | (at_hi & eq(x, hi)));
      const M out = number & negate<M>(inside);
      const M above = out & lt(hi, x), below = out & negate<M>(above);
      const M both = below & at_lo & at_hi, one = below & negate<M>(at_lo & at_hi);
      const M below_lo = one & at_lo, below_hi = one & negate<M>(at_lo);
      const M below_none = both & negate<M>(shared);
      return {
          // the bits of the codes in `beyond`
          M(inside | below_hi | below_none),
          M(below_lo | below_hi | above),
          M(both | above)};
    }
  }
}

// ---- The backward -------------------------------------------------------------------------------

// The pseudo-gradient of x where it lies below (or above) the result.
template <Sharing sharing, typename E, typename V>
CLAMPGRAD_HOST_DEVICE V decode_beyond(V g, Mask<V> is_below) {
  using M = Mask<V>;
  constexpr Gate gate = sharing == Sharing::with_grad ? Gate::with_grad
      : sharing == Sharing::with_grad_maximize        ? Gate::with_grad_maximize
      : sharing == Sharing::restoring                 ? Gate::restoring
                                                      : Gate::restoring_maximize;
  if constexpr (sharing == Sharing::straight_through) {
    return g;
  } else {
    return decode<gate, E>(g, Code<M>{negate<M>(is_below), everywhere<M>()});
  }
}

template <typename V>
struct PairGradient {
  V self, other;
};

// `clamps_from_below`: the other argument is a lower bound (pseudo-gradients only).
template <Sharing sharing, typename E, typename V>
CLAMPGRAD_HOST_DEVICE PairGradient<V> decode_pair(
    V g, Mask<V> self, Mask<V> other, bool clamps_from_below) {
  using M = Mask<V>;
  const V zero = V();
  if constexpr (is_pseudo(sharing)) {
    const V nan = sharing == Sharing::straight_through ? g : zero;
    const V out = decode_beyond<sharing, E>(g, where<M>(clamps_from_below));
    const V rest = other ? out : nan;
    return {self ? g : rest, other ? g : zero};
  } else {
    const V share = self & other ? E::halved(g) : g;
    if constexpr (sharing == Sharing::nan_to_both) {
      const M nan = negate<M>(self | other);
      self = self | nan;
      other = other | nan;
    }
    return {self ? share : zero, other ? share : zero};
  }
}

template <typename V>
struct TripleGradient {
  V x, lo, hi;
};

template <Sharing sharing, typename E, typename V>
CLAMPGRAD_HOST_DEVICE TripleGradient<V> decode_triple(V g, Mask<V> x, Mask<V> lo, Mask<V> hi) {
  using M = Mask<V>;
  const V zero = V(), half = E::halved(g);
  if constexpr (is_pseudo(sharing)) { // the bits of the codes in `beyond`
    const M above = lo & hi, inside = x & negate<M>(lo | hi), nan = negate<M>(x | lo | hi);
    const M below = negate<M>(above | inside | nan);
    const M to_lo = lo & negate<M>(x | hi), to_hi = (lo & x) | above;
    const M to_both = hi & negate<M>(x | lo);
    const V none = sharing == Sharing::straight_through ? g : zero;
    const V up = decode_beyond<sharing, E>(g, everywhere<M>());
    const V down = decode_beyond<sharing, E>(g, M());
    const V shared = to_both ? half : zero;
    V of_x = above ? down : none;
    of_x = below ? up : of_x;
    return {inside ? g : of_x, to_lo ? g : shared, to_hi ? g : shared};
  } else {
    const M all = x & lo & hi, pair = ((x & lo) | (x & hi) | (lo & hi)) & negate<M>(all);
    V share = pair ? half : g;
    if constexpr (sharing == Sharing::equal) {
      const V third = E::third(g);
      share = all ? third : share;
    }
    V of_x = x ? share : zero, of_lo = lo ? share : zero, of_hi = hi ? share : zero;
    if constexpr (sharing == Sharing::nested) {
      const V quarter = E::quartered(g);
      of_x = all ? quarter : of_x;
      of_lo = all ? quarter : of_lo;
      of_hi = all ? half : of_hi;
    } else if constexpr (sharing == Sharing::nan_to_ends) {
      of_lo = all ? zero : of_lo;
    }
    return {of_x, of_lo, of_hi};
  }
}

} // namespace
} // namespace clampgrad::CLAMPGRAD_ISA
