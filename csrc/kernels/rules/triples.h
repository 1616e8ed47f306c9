// What x and two bounds get of a gradient where all three are Tensors.

namespace clampgrad::CLAMPGRAD_INSTANCE {
namespace {

// Who gets a share. It is all of g, or half of it where `two` share it, or a third where `three`
// do. Where `nested`, x and lo share what hi leaves. An argument at its `halved_` mask gets half of
// g, whatever the other masks say of it; triple_masks alone sets these.
template <typename M>
struct TripleMasks {
  M x, lo, hi;
  M two = {}, three = {}, nested = {};
  M halved_x = {}, halved_lo = {}, halved_hi = {};
};

// torch.clamp of three Tensors: a NaN among them is the result, and hi wins where lo > hi. Of equal
// numbers it is the first or the last: this decides between +0 and -0.
template <bool tie_takes_last = false, typename V, typename K>
CLAMPGRAD_RULE V
clamped(V x, V lo, V hi, const Compared<K>& kx, const Compared<K>& klo, const Compared<K>& khi) {
  using M = Mask<K>;
  const auto is_beyond = [](const Compared<K>& a, const Compared<K>& b) {
    return M(tie_takes_last ? le(a, b) : lt(a, b));
  };
  const M raised = is_beyond(kx, klo);
  const M lowered = select(raised, is_beyond(khi, klo), is_beyond(khi, kx));
  V y = select(raised, lo, x);
  y = select(lowered, hi, y);
  y = select(khi.number, y, hi);
  y = select(klo.number, y, lo);
  return select(kx.number, y, x);
}

// ---- Who gets a share ---------------------------------------------------------------------------

// x gets a pseudo-gradient, by its position. Besides, where x is not the result (above hi, below
// lo, or below a hi that is less than lo), the bounds get what least norm gives them.
template <typename M>
struct PseudoMasks {
  Position<M> x;
  M lo, hi;
  M halved;
};

// PseudoMasks for a pseudo-gradient, else TripleMasks. `result` is the key of clamped(); only a
// pseudo-gradient reads it. `differentiated` has a bit per argument.
template <BitFormat format, typename K>
CLAMPGRAD_RULE auto triple_masks(
    const Compared<K>& x,
    const Compared<K>& lo,
    const Compared<K>& hi,
    const Compared<K>& result,
    int differentiated) {
  using M = Mask<K>;
  using Masks = TripleMasks<M>;
  if constexpr (format == BitFormat::position) {
    const M below = lt(x, result), above = lt(result, x);
    const M tie = eq(lo, hi) & broadcast<M>((differentiated & kLo) && (differentiated & kHi));
    const M halved = M(below & tie);
    return PseudoMasks<M>{
        {eq(x, result), below, above},
        M((below & lt(lo, hi)) | halved),
        M(above | (below & lt(hi, lo)) | halved),
        halved};
  } else if constexpr (format == BitFormat::inclusive) {
    return Masks{M(le(lo, x) & le(x, hi)), M(lt(x, lo) & lt(lo, hi)), M(lt(hi, x) | lt(hi, lo))};
  } else if constexpr (format == BitFormat::joint) {
    const M ordered = lt(lo, hi), crossed = lt(hi, lo), apart = le(lo, hi);
    const M under = lt(x, lo), over = lt(hi, x);
    const M at_lo = M(eq(x, lo) & ordered), at_hi = M(eq(x, hi) & ordered);
    return Masks{
        negate<M>(under | over),
        M(under & apart),
        M((over & apart) | crossed),
        M(),
        M(),
        M(),
        M(at_lo | at_hi),
        at_lo,
        at_hi};
  } else if constexpr (format == BitFormat::half) {
    const M number = x.number & lo.number & hi.number;
    const M raised = lt(x, lo);
    const Compared<K> inner = {larger(x.key, lo.key), x.comparable, x.number};
    const M shut = lt(hi, inner), tie = eq(inner, hi);
    const M open = number & negate<M>(shut);
    return Masks{
        M(open & negate<M>(raised)),
        M(open & le(x, lo)),
        M(number & (shut | tie)),
        tie,
        M(),
        eq(x, lo)};
  } else {
    static_assert(format == BitFormat::min_norm, "a convention has no rule for three Tensors");
    const M number = x.number & lo.number & hi.number;
    const M at_x = le(lo, x) & le(x, hi), at_lo = le(x, lo) & le(lo, hi);
    const M at_hi = number & (le(hi, x) | le(hi, lo));
    const M x_lo = at_x & at_lo, all = x_lo & at_hi;
    const M alone = (at_x ^ at_lo ^ at_hi) & negate<M>(all);
    // A constant among several active inputs makes 0 a subgradient.
    const bool of_x = differentiated & kX, of_lo = differentiated & kLo,
               of_hi = differentiated & kHi;
    const M constant = (at_x & broadcast<M>(!of_x)) | (at_lo & broadcast<M>(!of_lo)) |
        (at_hi & broadcast<M>(!of_hi));
    const M open = M(alone | negate<M>(constant));
    const M two = (x_lo & broadcast<M>(of_x && of_lo)) |
        (at_x & at_hi & broadcast<M>(of_x && of_hi)) |
        (at_lo & at_hi & broadcast<M>(of_lo && of_hi));
    return Masks{
        M(at_x & open),
        M(at_lo & open),
        M(at_hi & open),
        two,
        M(all & broadcast<M>(differentiated == kAll))};
  }
}

// ---- What each gets -----------------------------------------------------------------------------

template <typename Rule, typename E, typename V, typename Shares>
CLAMPGRAD_RULE void share(V g, const TripleMasks<Mask<V>>& at, Shares& out) {
  const V zero = V(), half = E::halved(g);
  const V part = select(at.three, E::third(g), select(at.two, half, g));
  const V inner = select(at.nested, select(at.two, E::quartered(g), half), part);
  out[0] = select(at.halved_x, half, select(at.x, inner, zero));
  out[1] = select(at.halved_lo, half, select(at.lo, inner, zero));
  out[2] = select(at.halved_hi, half, select(at.hi, part, zero));
}
template <typename Rule, typename E, typename V, typename Shares>
CLAMPGRAD_RULE void share(V g, const PseudoMasks<Mask<V>>& at, Shares& out) {
  const V zero = V(), part = select(at.halved, E::halved(g), g);
  share<Rule, E>(g, at.x, out);
  out[1] = select(at.lo, part, zero);
  out[2] = select(at.hi, part, zero);
}

// ---- As bits ------------------------------------------------------------------------------------
// A bit per argument, set where it gets a share. Those that are set share equally, unless a
// convention says otherwise (masks_in). The bits of a pseudo-gradient are a number, with x's
// the lowest: where x lies, and which bounds also get a share. 0 NaN; 1 inside; 2 below, lo; 3
// below, hi; 4 below, both; 5 below, none; 6 above, hi.

template <BitFormat format, typename M>
CLAMPGRAD_RULE void triple_bits(const TripleMasks<M>& at, M (&bits)[3]) {
  bits[0] = at.x;
  bits[1] = at.lo;
  bits[2] = at.hi;
  if constexpr (format == BitFormat::joint) { // two that get all of g are a case of their own
    bits[1] = M(at.lo | at.halved_lo | (at.x & at.hi));
    bits[2] = M(at.hi | at.halved_hi);
  }
}
template <BitFormat format, typename M>
CLAMPGRAD_RULE void triple_bits(const PseudoMasks<M>& at, M (&bits)[3]) {
  const M to_one = M(at.x.below & (at.lo ^ at.hi));
  bits[0] = M(at.x.inside | (at.x.below & negate<M>(at.lo)));
  bits[1] = M(to_one | at.x.above);
  bits[2] = M((at.x.below ^ to_one) | at.x.above);
}

// Masks with the same shares as those of triple_masks().
template <RuleName rule, bool maximize, typename M>
CLAMPGRAD_RULE auto masks_in(Rule<3, rule, maximize>, const M (&bits)[3], bool) {
  const M x = bits[0], lo = bits[1], hi = bits[2];
  if constexpr (is_pseudo(rule)) {
    const M above = lo & hi, below = lo ^ hi;
    const M to_lo = M(below & negate<M>(x)), halved = M(to_lo & hi);
    return PseudoMasks<M>{
        {M(x & negate<M>(lo | hi)), below, above}, to_lo, M(above | (x & lo) | halved), halved};
  } else if constexpr (rule == RuleName::half) { // all three: 1/4, 1/4, 1/2
    return TripleMasks<M>{x, lo, hi, M((x | lo) & hi), M(), M(x & lo)};
  } else {
    const M all = x & lo & hi, several = M((x & lo) | (x & hi) | (lo & hi));
    if constexpr (rule == RuleName::joint) { // all three: x is NaN, lo > hi: g to x and hi
      return TripleMasks<M>{x, M(lo ^ all), hi, M(several ^ all)};
    } else {
      return TripleMasks<M>{x, lo, hi, several, all};
    }
  }
}

} // namespace
} // namespace clampgrad::CLAMPGRAD_INSTANCE
