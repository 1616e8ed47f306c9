// Three Tensors on a GPU. An element records how its numbers compare. The rule makes bits of that,
// for 32 elements at a time, with a word for a mask. So a rule costs next to nothing, and there is
// one kernel for all. Comes after the rules.

namespace clampgrad::device {
namespace {

// A number of each of 32 elements, by how it compares with their x, lo and hi: one of these, or
// what is chosen from them.
struct Ordered {
  static constexpr int kChosen = -1;

  WordMask le[3], ge[3];
  int argument = kChosen; // else which of the three it is
};

CLAMPGRAD_HOST_DEVICE WordMask le(const Ordered& a, const Ordered& b) {
  return b.argument == Ordered::kChosen ? b.ge[a.argument] : a.le[b.argument];
}
CLAMPGRAD_HOST_DEVICE WordMask lt(const Ordered& a, const Ordered& b) {
  return le(a, b) & negate(le(b, a));
}
CLAMPGRAD_HOST_DEVICE WordMask eq(const Ordered& a, const Ordered& b) {
  return le(a, b) & le(b, a);
}
CLAMPGRAD_HOST_DEVICE Ordered select(WordMask mask, const Ordered& a, const Ordered& b) {
  Ordered chosen;
  for (int k = 0; k < 3; ++k) {
    chosen.le[k] = select(mask, a.le[k], b.le[k]);
    chosen.ge[k] = select(mask, a.ge[k], b.ge[k]);
  }
  return chosen;
}
CLAMPGRAD_HOST_DEVICE Ordered larger(const Ordered& a, const Ordered& b) {
  return select(lt(a, b), b, a);
}

template <typename E>
struct CompareTriple : Op<TensorForward<3>, E, 3> {
  BitFormat format;
  int differentiated;

  template <typename V, typename M>
  CLAMPGRAD_HOST_DEVICE void operator()(const V (&in)[3], M (&recorded)[6], V (&out)[1]) const {
    const auto x = compared<E>(in[0]), lo = compared<E>(in[1]), hi = compared<E>(in[2]);
    const M x_lo = le(x, lo), lo_x = le(lo, x), x_hi = le(x, hi), hi_x = le(hi, x);
    const M lo_hi = le(lo, hi), hi_lo = le(hi, lo);
    // The result of clamped(), by the fewest comparisons: first of x and lo, then of that and hi.
    const V raised = select(M(lo_x | negate(x.number)), in[0], in[1]);
    const M is_nan = negate(M(x_lo | lo_x));
    const M is_low = M((lo_x & x_hi) | (negate(lo_x) & lo_hi)); // of bools, cheaper than select()
    out[0] = select(M(is_nan | is_low), raised, in[2]);
    const M all[] = {x_lo, lo_x, x_hi, hi_x, lo_hi, hi_lo};
    for (int m = 0; m < 6; ++m) {
      recorded[m] = all[m];
    }
  }

  CLAMPGRAD_HOST_DEVICE void make_bits(const uint32_t (&recorded)[6], uint32_t (&bits)[3]) const {
    const auto as_mask = [&](int m) { return WordMask(recorded[m]); };
    const WordMask x_lo = as_mask(0), lo_x = as_mask(1), x_hi = as_mask(2), hi_x = as_mask(3);
    const WordMask lo_hi = as_mask(4), hi_lo = as_mask(5);
    // Beside two NaNs a number counts as NaN, which makes no difference.
    const WordMask x = x_lo | lo_x | x_hi | hi_x, lo = x_lo | lo_x | lo_hi | hi_lo;
    const WordMask hi = x_hi | hi_x | lo_hi | hi_lo;
    apply_rule<0>(
        argument(x, {{x, x_lo, x_hi}, {x, lo_x, hi_x}, 0}),
        argument(lo, {{lo_x, lo, lo_hi}, {x_lo, lo, hi_lo}, 1}),
        argument(hi, {{hi_x, hi_lo, hi}, {x_hi, lo_hi, hi}, 2}),
        bits);
  }

 private:
  using Argument = Compared<Ordered>;

  static CLAMPGRAD_HOST_DEVICE Argument argument(WordMask number, const Ordered& key) {
    return {key, everywhere<WordMask>(), number};
  }
  // Whether a convention has this format for three Tensors.
  template <BitFormat tried>
  static constexpr bool is_format() {
    for (int g = 0; g < kGradients; ++g) {
      if (format_of(static_cast<Gradient>(g), 3) == tried) {
        return true;
      }
    }
    return false;
  }
  template <int first>
  CLAMPGRAD_HOST_DEVICE void apply_rule(
      const Argument& x, const Argument& lo, const Argument& hi, uint32_t (&bits)[3]) const {
    constexpr auto tried = static_cast<BitFormat>(first);
    if constexpr (is_format<tried>()) {
      if (format == tried) {
        const Argument y = {
            clamped(x.key, lo.key, hi.key, x, lo, hi), everywhere<WordMask>(), WordMask()};
        WordMask masks[3];
        triple_bits<tried>(triple_masks<tried>(x, lo, hi, y, differentiated), masks);
        for (int b = 0; b < 3; ++b) {
          bits[b] = masks[b].bits;
        }
        return;
      }
    }
    if constexpr (tried != BitFormat::position) {
      apply_rule<first + 1>(x, lo, hi, bits);
    }
  }
};

template <typename E>
CompareTriple<E> compare_triple(const TensorForward<3>& call) {
  return {{}, format_of(call.gradient, 3), call.differentiated};
}

} // namespace
} // namespace clampgrad::device
