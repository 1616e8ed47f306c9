// Rules for x and two bounds, all three Tensors.

namespace clampgrad::CLAMPGRAD_INSTANCE {
namespace {

// Which arguments get a share: all of g, or half of it where `two` is set, or a third where `three`
// is. Where `nested` is set, x and lo share what hi leaves. Where `halved_x` is set, x gets g / 2,
// whatever its other masks are; likewise lo and hi. Only triple_masks() sets these three.
template <typename M>
struct TripleMasks {
  M x, lo, hi;
  M two = {}, three = {}, nested = {};
  M halved_x = {}, halved_lo = {}, halved_hi = {};
};

// Computes torch.clamp of three Tensors: a NaN among them is the result, and hi wins where lo > hi.
// Of equal numbers the result is the first or the last: this decides between +0 and -0.
template <bool tie_takes_last = false, typename V, typename K>
CLAMPGRAD_RULE V clamp_values(
    V x, V lo, V hi, const Comparand<K>& kx, const Comparand<K>& klo, const Comparand<K>& khi) {
  using M = Mask<K>;
  const auto is_beyond = [](const Comparand<K>& a, const Comparand<K>& b) {
    return M(tie_takes_last ? le(a, b) : lt(a, b));
  };
  const M raised = is_beyond(kx, klo);
  const M lowered = select(raised, is_beyond(khi, klo), is_beyond(khi, kx));
  V y = select(raised, lo, x);
  y = select(lowered, hi, y);
  y = select(khi.not_nan, y, hi);
  y = select(klo.not_nan, y, lo);
  return select(kx.not_nan, y, x);
}

// ---- Masks of x, lo and hi ----------------------------------------------------------------------

// x gets a pseudo-gradient, by its region. And where x is not the result (above hi, below lo, or
// below a hi that is less than lo), the bounds get the shares of min_norm.
template <typename M>
struct PseudoMasks {
  Region<M> x;
  M lo, hi;
  M halved;
};

// Returns PseudoMasks for a pseudo-gradient, else TripleMasks. `result` is the key of
// clamp_values(); only a pseudo-gradient reads it. `differentiated_mask` has a bit per argument.
template <BitFormat format, typename K>
CLAMPGRAD_RULE auto triple_masks(
    const Comparand<K>& x,
    const Comparand<K>& lo,
    const Comparand<K>& hi,
    const Comparand<K>& result,
    int differentiated_mask) {
  using M = Mask<K>;
  using Masks = TripleMasks<M>;
  if constexpr (format == BitFormat::region) {
    const M below = lt(x, result), above = lt(result, x);
    const M tie = eq(lo, hi) &
        mask_from_bool<M>((differentiated_mask & kLoBit) && (differentiated_mask & kHiBit));
    const M halved = M(below & tie);
    return PseudoMasks<M>{
        {eq(x, result), below, above},
        M((below & lt(lo, hi)) | halved),
        M(above | (below & lt(hi, lo)) | halved),
        halved};
  } else if constexpr (format == BitFormat::inclusive) {
    return Masks{M(le(lo, x) & le(x, hi)), M(lt(x, lo) & lt(lo, hi)), M(lt(hi, x) | lt(hi, lo))};
  } else if constexpr (format == BitFormat::joint) {
    const M lo_below_hi = lt(lo, hi), crossed = lt(hi, lo), not_crossed = le(lo, hi);
    const M under = lt(x, lo), over = lt(hi, x);
    const M at_lo = M(eq(x, lo) & lo_below_hi), at_hi = M(eq(x, hi) & lo_below_hi);
    Masks at = {
        logical_not<M>(under | over), M(under & not_crossed), M((over & not_crossed) | crossed)};
    at.halved_x = M(at_lo | at_hi);
    at.halved_lo = at_lo;
    at.halved_hi = at_hi;
    return at;
  } else if constexpr (format == BitFormat::half) {
    const M not_nan = x.not_nan & lo.not_nan & hi.not_nan;
    const M raised = lt(x, lo);
    const Comparand<K> inner = {larger(x.key, lo.key), x.comparable, x.not_nan};
    const M above_hi = lt(hi, inner), tie = eq(inner, hi);
    const M open = not_nan & logical_not<M>(above_hi);
    Masks at = {
        M(open & logical_not<M>(raised)), M(open & le(x, lo)), M(not_nan & (above_hi | tie))};
    at.two = tie;
    at.nested = eq(x, lo);
    return at;
  } else {
    static_assert(format == BitFormat::min_norm, "a convention has no rule for three Tensors");
    const M not_nan = x.not_nan & lo.not_nan & hi.not_nan;
    const M at_x = le(lo, x) & le(x, hi), at_lo = le(x, lo) & le(lo, hi);
    const M at_hi = not_nan & (le(hi, x) | le(hi, lo));
    const M x_lo = at_x & at_lo, all = x_lo & at_hi;
    const M one_active = (at_x ^ at_lo ^ at_hi) & logical_not<M>(all);
    // With a constant among several active arguments, 0 is a subgradient.
    const bool x_differentiated = differentiated_mask & kXBit,
               lo_differentiated = differentiated_mask & kLoBit,
               hi_differentiated = differentiated_mask & kHiBit;
    const M constant = (at_x & mask_from_bool<M>(!x_differentiated)) |
        (at_lo & mask_from_bool<M>(!lo_differentiated)) |
        (at_hi & mask_from_bool<M>(!hi_differentiated));
    const M open = M(one_active | logical_not<M>(constant));
    Masks at = {M(at_x & open), M(at_lo & open), M(at_hi & open)};
    at.two = (x_lo & mask_from_bool<M>(x_differentiated && lo_differentiated)) |
        (at_x & at_hi & mask_from_bool<M>(x_differentiated && hi_differentiated)) |
        (at_lo & at_hi & mask_from_bool<M>(lo_differentiated && hi_differentiated));
    at.three = M(all & mask_from_bool<M>(differentiated_mask == kAllArgs));
    return at;
  }
}

// ---- Shares -------------------------------------------------------------------------------------

template <typename Rule, typename E, typename V, typename Shares>
CLAMPGRAD_RULE void compute_shares(V g, const TripleMasks<Mask<V>>& at, Shares& out) {
  const V zero = V(), half = E::half_of(g);
  const V part = select(at.three, E::third_of(g), select(at.two, half, g));
  const V inner = select(at.nested, select(at.two, E::quarter_of(g), half), part);
  out[0] = select(at.halved_x, half, select(at.x, inner, zero));
  out[1] = select(at.halved_lo, half, select(at.lo, inner, zero));
  out[2] = select(at.halved_hi, half, select(at.hi, part, zero));
}
template <typename Rule, typename E, typename V, typename Shares>
CLAMPGRAD_RULE void compute_shares(V g, const PseudoMasks<Mask<V>>& at, Shares& out) {
  const V zero = V(), part = select(at.halved, E::half_of(g), g);
  compute_shares<Rule, E>(g, at.x, out);
  out[1] = select(at.lo, part, zero);
  out[2] = select(at.hi, part, zero);
}

// ---- Masks as bits ------------------------------------------------------------------------------
// A bit per argument, set where it gets a share. Arguments whose bits are set get equal shares;
// unpack_masks() has the exceptions. The bits of a pseudo-gradient are a number, with x's the
// lowest: the region of x, and which bounds also get a share. 0 NaN; 1 inside; 2 below, lo; 3
// below, hi; 4 below, both; 5 below, none; 6 above, hi.

template <BitFormat format, typename M>
CLAMPGRAD_RULE void pack_triple_bits(const TripleMasks<M>& at, M (&bits)[3]) {
  bits[0] = at.x;
  bits[1] = at.lo;
  bits[2] = at.hi;
  if constexpr (format == BitFormat::joint) { // two arguments that get all of g have a pattern of
                                              // their own
    bits[1] = M(at.lo | at.halved_lo | (at.x & at.hi));
    bits[2] = M(at.hi | at.halved_hi);
  }
}
template <BitFormat format, typename M>
CLAMPGRAD_RULE void pack_triple_bits(const PseudoMasks<M>& at, M (&bits)[3]) {
  const M to_one = M(at.x.below & (at.lo ^ at.hi));
  bits[0] = M(at.x.inside | (at.x.below & logical_not<M>(at.lo)));
  bits[1] = M(to_one | at.x.above);
  bits[2] = M((at.x.below ^ to_one) | at.x.above);
}

// Returns masks with the same shares as those of triple_masks().
template <RuleName rule, bool maximize, typename M>
CLAMPGRAD_RULE auto unpack_masks(Rule<3, rule, maximize>, const M (&bits)[3], bool) {
  const M x = bits[0], lo = bits[1], hi = bits[2];
  if constexpr (is_pseudo(rule)) {
    const M above = lo & hi, below = lo ^ hi;
    const M to_lo = M(below & logical_not<M>(x)), halved = M(to_lo & hi);
    return PseudoMasks<M>{
        {M(x & logical_not<M>(lo | hi)), below, above},
        to_lo,
        M(above | (x & lo) | halved),
        halved};
  } else {
    TripleMasks<M> at = {x, lo, hi};
    if constexpr (rule == RuleName::half) { // all three: 1/4, 1/4, 1/2
      at.two = M((x | lo) & hi);
      at.nested = M(x & lo);
    } else {
      const M all = x & lo & hi, several = M((x & lo) | (x & hi) | (lo & hi));
      if constexpr (rule == RuleName::joint) { // all three: x is NaN, lo > hi: g to x and hi
        at.lo = M(lo ^ all);
        at.two = M(several ^ all);
      } else {
        at.two = several;
        at.three = all;
      }
    }
    return at;
  }
}

} // namespace
} // namespace clampgrad::CLAMPGRAD_INSTANCE
