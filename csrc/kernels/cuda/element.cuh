// Elements on a GPU, which converts 16 bits in one instruction: compared as floats, moved as bits.
// Where it compares two at once (packed.cuh), a V is a pair of them.

namespace clampgrad::device {
namespace {

// The V for a lane: itself.
template <typename Lane>
CLAMPGRAD_HOST_DEVICE Lane splat(Lane value) {
  return value;
}

// ---- Masks in a word, and a pair of 16-bit numbers ----------------------------------------------

// What a rule needs of masks and of values: Note [One rule for a value, a vector and a Tensor].
// A mask has 16 equal bits for each of two numbers, or one bit for each of 32 elements.
struct WordMask {
  uint32_t bits = 0;

  WordMask() = default;
  explicit CLAMPGRAD_HOST_DEVICE WordMask(int64_t both) : bits(static_cast<uint32_t>(both)) {}
  friend CLAMPGRAD_HOST_DEVICE WordMask operator&(WordMask a, WordMask b) {
    return WordMask(a.bits & b.bits);
  }
  friend CLAMPGRAD_HOST_DEVICE WordMask operator|(WordMask a, WordMask b) {
    return WordMask(a.bits | b.bits);
  }
  friend CLAMPGRAD_HOST_DEVICE WordMask operator^(WordMask a, WordMask b) {
    return WordMask(a.bits ^ b.bits);
  }
};

template <typename T>
struct Pair {
  uint32_t bits = 0;

  static CLAMPGRAD_HOST_DEVICE Pair of(uint16_t first, uint16_t second) {
    return {first | uint32_t{second} << 16};
  }
};

template <typename T>
__device__ __forceinline__ WordMask eq(Pair<T> a, Pair<T> b) {
  return WordMask(cuda::eq2<T>(a.bits, b.bits));
}
template <typename T>
__device__ __forceinline__ WordMask lt(Pair<T> a, Pair<T> b) {
  return WordMask(cuda::lt2<T>(a.bits, b.bits));
}
template <typename T>
__device__ __forceinline__ WordMask le(Pair<T> a, Pair<T> b) {
  return WordMask(cuda::le2<T>(a.bits, b.bits));
}
template <typename Bits>
CLAMPGRAD_HOST_DEVICE Bits select_bits(WordMask mask, Bits a, Bits b) {
  Bits chosen = a;
  chosen.bits = (mask.bits & a.bits) | (~mask.bits & b.bits);
  return chosen;
}
CLAMPGRAD_HOST_DEVICE WordMask select(WordMask mask, WordMask a, WordMask b) {
  return select_bits(mask, a, b);
}
template <typename T>
CLAMPGRAD_HOST_DEVICE Pair<T> select(WordMask mask, Pair<T> a, Pair<T> b) {
  return select_bits(mask, a, b);
}
template <typename T>
__device__ __forceinline__ Pair<T> larger(Pair<T> a, Pair<T> b) {
  return select(lt(a, b), b, a);
}
template <typename T>
__device__ __forceinline__ Pair<T> lesser(Pair<T> a, Pair<T> b) {
  return select(lt(b, a), b, a);
}

template <typename T>
struct SingleRegister;
template <typename T>
struct PairRegister;

// ---- Elements -----------------------------------------------------------------------------------

template <typename T>
struct AsFloat : ElementFor<T> {
  using Lane = uint16_t;

  static CLAMPGRAD_HOST_DEVICE float key(Lane x) {
    return static_cast<float>(T(x, T::from_bits()));
  }
  static CLAMPGRAD_HOST_DEVICE bool not_nan(Lane x) {
    return key(x) == key(x);
  }
  static CLAMPGRAD_HOST_DEVICE bool comparable(Lane) { // comparisons with NaN are false anyway
    return true;
  }
  static CLAMPGRAD_HOST_DEVICE Lane half_of(Lane x) {
    return T(key(x) * 0.5f).x;
  }
  static CLAMPGRAD_HOST_DEVICE Lane quarter_of(Lane x) {
    return T(key(x) * 0.25f).x;
  }
  static CLAMPGRAD_HOST_DEVICE Lane third_of(Lane x) { // a float has room for the error of 1 / 3
    return T(key(x) * (1.0f / 3)).x;
  }

  static CLAMPGRAD_HOST_DEVICE Pair<T> key(Pair<T> x) {
    return x;
  }
  static __device__ __forceinline__ WordMask not_nan(Pair<T> x) {
    return eq(x, x);
  }
  static CLAMPGRAD_HOST_DEVICE WordMask comparable(Pair<T>) {
    return all_true<WordMask>();
  }
  static __device__ __forceinline__ Pair<T> half_of(Pair<T> x) {
    return {cuda::mul2<T>(x.bits, 0.5f)};
  }
  static __device__ __forceinline__ Pair<T> quarter_of(Pair<T> x) {
    return {cuda::mul2<T>(x.bits, 0.25f)};
  }
  static CLAMPGRAD_HOST_DEVICE Pair<T> third_of(Pair<T> x) {
    return Pair<T>::of(
        third_of(static_cast<Lane>(x.bits)), third_of(static_cast<Lane>(x.bits >> 16)));
  }
  template <typename V, typename M>
  static CLAMPGRAD_HOST_DEVICE V sign(M plus, M minus) {
    if constexpr (std::is_same_v<V, Pair<T>>) {
      constexpr auto one = ElementFor<T>::one, minus_one = ElementFor<T>::minus_one;
      return select(plus, V::of(one, one), select(minus, V::of(minus_one, minus_one), V()));
    } else {
      return ElementFor<T>::template sign<V>(plus, minus);
    }
  }
};

// Up to 2.12 torch.clamp takes max and min on the GPU, which make +0 greater than -0; since then it
// compares, as on the CPU (pytorch/pytorch#185354).
template <typename T>
struct CudaElement : std::conditional_t<sizeof(T) == 2, AsFloat<T>, ElementFor<T>> {
  static constexpr bool is_packed = sizeof(T) == 2 && cuda::compares_in_pairs<T>;
  using Register = std::conditional_t<is_packed, PairRegister<T>, SingleRegister<T>>;

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13
  template <bool has_lo, bool has_hi, typename V, typename K>
  static CLAMPGRAD_HOST_DEVICE V clamp(V x, K key, bool, const Bounds<V>&, const Bounds<K>& keys) {
    const K raised = has_lo ? std::fmax(key, keys.lo) : key;
    const K clamped = has_hi ? std::fmin(raised, keys.hi) : raised;
    if constexpr (std::is_same_v<V, K>) {
      return key == key ? clamped : x;
    } else {
      return key == key ? T(clamped).x : x;
    }
  }
  template <bool has_lo, bool has_hi>
  static __device__ __forceinline__ Pair<T> clamp(
      Pair<T> x, Pair<T>, WordMask, const Bounds<Pair<T>>&, const Bounds<Pair<T>>& bounds) {
    const Pair<T> raised = {has_lo ? cuda::max2<T>(x.bits, bounds.lo.bits) : x.bits};
    const Pair<T> clamped = {has_hi ? cuda::min2<T>(raised.bits, bounds.hi.bits) : raised.bits};
    return select(eq(x, x), clamped, x);
  }
#endif
};

} // namespace
} // namespace clampgrad::device
