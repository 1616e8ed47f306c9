// Three Tensors on a GPU. An element records how its numbers compare. The rule makes bits of that,
// for 32 elements at a time, with a word for a mask. So a rule costs next to nothing, and there is
// one kernel for all. Comes after the rules.

namespace clampgrad::device {
namespace {

// A number of each of 32 elements, by how it compares with their x, lo and hi: one of these, or
// what is chosen from them.
struct OrderedKey {
  static constexpr int kChosen = -1;

  WordMask le[3], ge[3];
  int argument = kChosen; // else which of the three it is
};

CLAMPGRAD_HOST_DEVICE WordMask le(const OrderedKey& a, const OrderedKey& b) {
  return b.argument == OrderedKey::kChosen ? b.ge[a.argument] : a.le[b.argument];
}
CLAMPGRAD_HOST_DEVICE WordMask lt(const OrderedKey& a, const OrderedKey& b) {
  return le(a, b) & logical_not(le(b, a));
}
CLAMPGRAD_HOST_DEVICE WordMask eq(const OrderedKey& a, const OrderedKey& b) {
  return le(a, b) & le(b, a);
}
CLAMPGRAD_HOST_DEVICE OrderedKey select(WordMask mask, const OrderedKey& a, const OrderedKey& b) {
  OrderedKey chosen;
  for (int k = 0; k < 3; ++k) {
    chosen.le[k] = select(mask, a.le[k], b.le[k]);
    chosen.ge[k] = select(mask, a.ge[k], b.ge[k]);
  }
  return chosen;
}
CLAMPGRAD_HOST_DEVICE OrderedKey larger(const OrderedKey& a, const OrderedKey& b) {
  return select(lt(a, b), b, a);
}

// Floats, whose comparisons are added up as numbers: the bools of a tile are far more than a GPU
// has predicates, and ptxas takes many instructions to keep them.
struct SummedElement : CudaElement<float> {
  struct Register : SingleRegister<float> {
    using Mask = float; // 1 or 0

    static CLAMPGRAD_HOST_DEVICE bool bit(float recorded, int) {
      return recorded != 0;
    }
    static CLAMPGRAD_HOST_DEVICE void put(uint32_t& masks, int row, int i, float recorded) {
      float sum;
      std::memcpy(&sum, &masks, sizeof(sum));
      sum += recorded * static_cast<float>(1 << (4 * row + i)); // exact: 16 bits
      std::memcpy(&masks, &sum, sizeof(sum));
    }
    static CLAMPGRAD_HOST_DEVICE uint32_t word(uint32_t masks) {
      float sum;
      std::memcpy(&sum, &masks, sizeof(sum));
      return static_cast<uint32_t>(sum);
    }
    static CLAMPGRAD_HOST_DEVICE uint32_t compact_bits(uint32_t bits) {
      const uint32_t rows = bits & 0xffff, halves = (rows | rows << 8) & 0xff00ff;
      return (halves | halves << 4) & 0xf0f0f0f;
    }
  };
};

template <typename E>
struct CompareTriple : Op<TensorForward<3>, E, 3> {
  BitFormat format;
  int differentiated_mask;

  template <typename V, typename RecordedBit>
  CLAMPGRAD_HOST_DEVICE void operator()(
      const V (&in)[3], RecordedBit (&recorded)[6], V (&out)[1]) const {
    using M = Mask<V>;
    const auto x = make_comparand<E>(in[0]), lo = make_comparand<E>(in[1]),
               hi = make_comparand<E>(in[2]);
    const M x_lo = le(x, lo), lo_x = le(lo, x), x_hi = le(x, hi), hi_x = le(hi, x);
    const M lo_hi = le(lo, hi), hi_lo = le(hi, lo);
    // The result of clamp_values(), by the fewest comparisons: first of x and lo, then of that and
    // hi.
    const V raised = select(M(lo_x | logical_not(x.not_nan)), in[0], in[1]);
    const M is_nan = logical_not(M(x_lo | lo_x)), is_low = select(lo_x, x_hi, lo_hi);
    out[0] = select(M(is_nan | is_low), raised, in[2]);
    recorded[0] = as<RecordedBit>(x_lo, in[0], in[1]);
    recorded[1] = as<RecordedBit>(lo_x, in[1], in[0]);
    recorded[2] = as<RecordedBit>(x_hi, in[0], in[2]);
    recorded[3] = as<RecordedBit>(hi_x, in[2], in[0]);
    recorded[4] = as<RecordedBit>(lo_hi, in[1], in[2]);
    recorded[5] = as<RecordedBit>(hi_lo, in[2], in[1]);
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
  using Argument = Comparand<OrderedKey>;

  template <typename RecordedBit, typename V>
  static CLAMPGRAD_HOST_DEVICE RecordedBit as(Mask<V> less_or_equal, V a, V b) {
    if constexpr (std::is_same_v<RecordedBit, float>) {
      return cuda::le1(a, b);
    } else {
      return less_or_equal;
    }
  }

  static CLAMPGRAD_HOST_DEVICE Argument argument(WordMask not_nan, const OrderedKey& key) {
    return {key, all_true<WordMask>(), not_nan};
  }
  // Whether a convention has this format for three Tensors.
  template <BitFormat tried>
  static constexpr bool is_format() {
    for (int g = 0; g < kGradientCount; ++g) {
      if (bit_format_of(static_cast<Gradient>(g), 3) == tried) {
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
            clamp_values(x.key, lo.key, hi.key, x, lo, hi), all_true<WordMask>(), WordMask()};
        WordMask masks[3];
        pack_triple_bits<tried>(triple_masks<tried>(x, lo, hi, y, differentiated_mask), masks);
        for (int b = 0; b < 3; ++b) {
          bits[b] = masks[b].bits;
        }
        return;
      }
    }
    if constexpr (tried != BitFormat::region) {
      apply_rule<first + 1>(x, lo, hi, bits);
    }
  }
};

template <typename E>
auto compare_triple(const TensorForward<3>& call) {
  using ComparingElement =
      std::conditional_t<std::is_same_v<E, CudaElement<float>>, SummedElement, E>;
  const BitFormat format = bit_format_of(call.gradient, 3);
  return CompareTriple<ComparingElement>{{}, format, call.differentiated_mask};
}

} // namespace
} // namespace clampgrad::device
